#!/usr/bin/env python3
"""Checks that the tests notice defects: ``mutants.py [TEXT]``.

Applies each change of ``mutants.toml`` (or those with TEXT in their name) to a copy of the sources in
``target/mutants``, one at a time, and runs the tests that must fail then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "target" / "mutants"
TREE = FOLDER / "tree"


def copy(tree: Path) -> None:
    """Brings a copy of the sources up to date. What has not changed keeps its time: it is not built again."""
    names = ["ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(["git", *names], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        source, target = ROOT / name, tree / name
        if source.is_file():
            data = source.read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)


def cargo(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "test", "--quiet", "--features", "broker", *words]
    environment = os.environ | {"CARGO_TARGET_DIR": str(FOLDER / "build")}
    # A defect may make a test wait for ever.
    try:
        return subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "timed out")


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["mutant"]
    mutants = [mutant for mutant in mutants if wanted in mutant["name"]]
    os.nice(10)
    copy(TREE)
    failures = 0
    for tests in {tuple(mutant["test"]): None for mutant in mutants}:
        if (run := cargo(*tests)).returncode:
            print(f"fails without a mutant: {' '.join(tests)}\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
            return 1
    for mutant in mutants:
        started = time.monotonic()
        path = TREE / mutant["file"]
        original = path.read_text()
        if original.count(mutant["old"]) != 1:
            print(f"{mutant['name']}: {mutant['file']} has no such place, or several: {mutant['old']}")
            failures += 1
            continue
        path.write_text(original.replace(mutant["old"], mutant["new"]))
        try:
            built = cargo("--no-run", *mutant["test"][:-1])
            run = built if built.returncode else cargo(*mutant["test"])
        finally:
            path.write_text(original)
        verdict = "killed" if run.returncode else "SURVIVED"
        if built.returncode:
            verdict = f"does not compile:\n{built.stderr[-2000:]}"
        failures += verdict != "killed"
        print(f"{verdict}: {mutant['name']} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(mutants) - failures} of {len(mutants)} killed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
