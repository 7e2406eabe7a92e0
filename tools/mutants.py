#!/usr/bin/env python3
"""Checks that the tests notice defects: ``mutants.py [TEXT]``.

Applies each change of ``mutants.toml`` (or those with TEXT in their name) to a copy of the sources in
``target/mutants``, one at a time, and runs the tests and the fuzz target that must fail then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

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
                target.chmod(source.stat().st_mode)


def cargo(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "test", "--quiet", *words]
    environment = os.environ | {"CARGO_TARGET_DIR": str(FOLDER / "build"), "FUZZ_SECONDS": "30"}
    # A defect may make a test wait for ever.
    try:
        return subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "timed out")


def fuzz(target: str) -> bool:
    """Whether a fuzz target fails within half a minute."""
    return bool(cargo("--workspace", "--test", "fuzz", "--", "--exact", target).returncode)


def apply(mutant: dict[str, Any]) -> dict[Path, str]:
    """Makes the changes of a mutant. Returns the files as they were before."""
    before: dict[Path, str] = {}
    for change in (mutant, *mutant.get("also", ())):
        path = TREE / change["file"]
        text = path.read_text()
        before.setdefault(path, text)
        if text.count(change["old"]) != 1:
            restore(before)
            raise LookupError(f"{change['file']} has no such place, or several: {change['old']}")
        path.write_text(text.replace(change["old"], change["new"]))
    return before


def restore(before: dict[Path, str]) -> None:
    for path, text in before.items():
        path.write_text(text)


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
        try:
            before = apply(mutant)
        except LookupError as error:
            print(f"{mutant['name']}: {error}")
            failures += 1
            continue
        fuzzed = True
        try:
            built = cargo("--no-run", *mutant["test"][:-1])
            run = built if built.returncode else cargo(*mutant["test"])
            if "fuzz" in mutant and not built.returncode:
                fuzzed = fuzz(mutant["fuzz"])
        finally:
            restore(before)
        verdict = "killed" if run.returncode else "SURVIVED"
        if not fuzzed:
            verdict = f"SURVIVED {mutant['fuzz']}"
        if built.returncode:
            verdict = f"does not compile:\n{built.stderr[-2000:]}"
        failures += verdict != "killed"
        print(f"{verdict}: {mutant['name']} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(mutants) - failures} of {len(mutants)} killed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
