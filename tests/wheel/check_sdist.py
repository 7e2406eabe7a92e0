"""check_sdist.py [--build] FOLDER: the sdist of FOLDER has what a build needs, and nothing else. With
``--build`` pip builds the wheel from it, in an environment of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = {"PKG-INFO"}
TOP = {
    *("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE"),
    *("SECURITY.md", "CHANGELOG.md", "src", "proto", "python"),
}


def problems(sdist: Path) -> list[str]:
    """What is missing or too much."""
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
        roots = {member.name.partition("/")[0] for member in members}
        if len(roots) != 1:
            return [f"it has {sorted(roots)} at its top, not one folder"]
        names = {member.name.partition("/")[2] for member in members}
        file = archive.extractfile(f"{roots.pop()}/PKG-INFO")
        metadata = file.read().decode().splitlines() if file else []
    tree = _of_the_tree()
    return [
        *(f"{name} is missing" for name in sorted(tree - names)),
        *(f"{name} does not belong there" for name in sorted(names - tree - MADE)),
        *(f"{member.name} is not a plain file" for member in members if not member.isfile()),
        *(f"PKG-INFO has no {line}" for line in _metadata() if line not in metadata),
    ]


def _of_the_tree() -> set[str]:
    """The files that git keeps, or would keep."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *sorted(TOP)]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


def _metadata() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    return [
        *(f"Project-URL: {name}, {url}" for name, url in project["urls"].items()),
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        *(f"Provides-Extra: {extra}" for extra in project["optional-dependencies"]),
        f"Requires-Python: {project['requires-python']}",
        f"Author: {project['authors'][0]['name']}",
        f"License-Expression: {project['license']}",
        "Version: " + re.sub(r"-(a|b|rc)[a-z]*[.]", r"\1", version),
    ]


def main() -> int:
    folder = Path(sys.argv[-1])
    sdists = sorted(folder.glob("forebay-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    if not sdists:
        print(f"no sdist in {folder}", file=sys.stderr)
        return 1
    found = problems(sdists[-1])
    print("\n".join(found) or f"{sdists[-1].name} has what a build needs, and nothing else")
    if not found and "--build" in sys.argv[1:-1]:
        with tempfile.TemporaryDirectory(prefix="forebay-sdist-") as built:
            words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built]
            subprocess.run([*words, str(sdists[-1].resolve())], check=True)
            print(f"pip has built {next(Path(built).iterdir()).name} from it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
