"""What the package says of itself, the sdist, and the recipe of a release."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

import forebay

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


def test_the_version_is_written_once() -> None:
    assert forebay.__version__ == importlib.metadata.version("forebay") == CARGO["version"]
    assert "version" not in PYPROJECT["project"]
    sources = (ROOT / "python" / "forebay").rglob("*.py")
    written = [path for path in sources if CARGO["version"] in path.read_text()]
    assert written == []
    said = subprocess.check_output([sys.executable, "-m", "forebay", "--version"], text=True, timeout=300)
    assert said == f"forebay {CARGO['version']}\n"


def test_without_an_installation_the_version_is_unknown(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "python" / "forebay",
        tmp_path / "forebay",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    words = [sys.executable, "-S", "-c", "import forebay; print(forebay.__version__)"]
    assert subprocess.check_output(words, cwd=tmp_path, text=True, timeout=300) == "unknown\n"


def named(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def test_all_is_every_other_extra() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    (every,) = named(extras["all"])
    assert every.extras == set(extras) - {"all"}
    assert "dev" not in extras, "what contributors need is in the dependency groups"


def locked() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in ("demo", "dev", "docs", "wheel"):
        for line in (ROOT / "tools" / "locks" / f"{name}.txt").read_text().splitlines():
            if match := re.match(r"([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ;]+)", line):
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), set()).add(match[2])
    return found


def test_the_locked_versions_are_ones_that_the_package_takes() -> None:
    pins = locked()
    groups, extras = PYPROJECT["dependency-groups"], PYPROJECT["project"]["optional-dependencies"]
    lines = [line for group in groups.values() for line in group if isinstance(line, str)]
    lines += [line for name, extra in extras.items() if name not in ("all", "otel") for line in extra]
    assert len(lines) > 20
    for wanted in named(lines):
        versions = pins.get(re.sub(r"[-_.]+", "-", wanted.name).lower())
        assert versions, f"{wanted.name} is not locked"
        assert all(version in wanted.specifier for version in versions), (wanted, versions)


def test_a_group_includes_groups_that_exist() -> None:
    groups = PYPROJECT["dependency-groups"]
    included = [one["include-group"] for group in groups.values() for one in group if isinstance(one, dict)]
    assert included and set(included) <= set(groups)


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_sdist", ROOT / "tests" / "wheel" / "check_sdist.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    maturin = Path(sys.executable).with_name("maturin")
    subprocess.run(
        [maturin, "sdist", "--out", folder], cwd=ROOT, check=True, capture_output=True, timeout=120
    )
    return next(folder.glob("*.tar.gz"))


def test_the_sdist_has_what_a_build_needs_and_nothing_else(checks: ModuleType, sdist: Path) -> None:
    assert checks.problems(sdist) == []
    assert sdist.stat().st_size < 8 << 20


def test_cargo_can_read_the_sdist(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        # The first releases of Python 3.11 have no filters.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safe)
    (root,) = tmp_path.iterdir()
    words = ["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_or_too_much_is_found(checks: ModuleType, sdist: Path, tmp_path: Path) -> None:
    changed = tmp_path / "forebay-0.tar.gz"
    with tarfile.open(sdist) as old, tarfile.open(changed, "w:gz") as new:
        for member in old.getmembers():
            if not member.name.endswith("/pb.rs"):
                new.addfile(member, old.extractfile(member))
        new.add(__file__, f"{member.name.partition('/')[0]}/secret.key")
    assert checks.problems(changed) == [
        *(f"src/{protocol}/pb.rs is missing" for protocol in ("pulsar", "tubemq")),
        "secret.key does not belong there",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage: release VERSION"),
        (["one"], "one is no version"),
        (["v1.0.0"], "v1.0.0 is no version"),
        (["99.0.0"], f"Cargo.toml has the version {CARGO['version']}, not 99.0.0"),
        (["99.0.0rc1"], "not 99.0.0-rc.1"),
    ],
)
def test_a_release_of_another_version_is_refused_before_anything_is_built(
    words: list[str], said: str
) -> None:
    done = subprocess.run([ROOT / "tools" / "release", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_release_needs_its_heading_and_a_clean_tree(tmp_path: Path) -> None:
    version = CARGO["version"]
    (tmp_path / "tools").mkdir()
    for name in ("tools/release", "Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    log = tmp_path / "CHANGELOG.md"

    def release() -> str:
        words = [tmp_path / "tools" / "release", version]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode != 0
        return done.stderr

    def git(*words: str) -> None:
        as_one = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *as_one, *words], cwd=tmp_path, check=True, capture_output=True, timeout=300)

    git("init")
    for heading in ("Unreleased", f"{version} (unreleased)", version, "99.0.0 (2030-01-01)"):
        log.write_text(f"# Changelog\n\n## {heading}\n")
        assert f"is '{heading}': make it '## {version} (DATE)'" in release()
    log.write_text(f"# Changelog\n\n## {version} (2030-01-01)\n")
    assert "not committed" in release()
    git("add", ".")
    git("commit", "-m", "ready")
    git("tag", f"v{version}")
    assert f"there is a tag v{version} already" in release()


def test_the_recipe_publishes_nothing() -> None:
    """What would publish stands in the text that it prints, and nowhere else."""
    commands, printed = (ROOT / "tools" / "release").read_text().split("cat <<EOF", 1)
    for word in ("git push", "git tag", "twine upload", "maturin upload", "maturin publish"):
        assert word not in commands
    assert "twine upload" in printed
