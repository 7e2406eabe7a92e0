#!/usr/bin/env python3
"""Runs the tests against every mutant that cargo-mutants knows: ``schemata.py [--again] [FILE...]``.

cargo-mutants builds the crate for each mutant, which takes days. Here all of them are compiled into one
copy of the sources (mutant schemata): a function holds its body once for each mutant, and the environment
variable ``FOREBAY_MUTANT`` names the one that runs. What does not compile is taken out by the errors of the
compiler. A first pass runs each test by itself and notes which functions it reaches, so that a mutant is
shown only to tests that can notice it, those nearest to it first.

Without files: those of ``.cargo/mutants.toml``. ``--again`` repeats what survived, or was not run, the last
time. Results are in ``target/schemata/results.json``. Survivors that do no harm are in ``mutants.toml``, with
the reason. Mutants of constants are not run.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mutants import copy

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "target" / "schemata"
TREE = FOLDER / "tree"
RESULTS = FOLDER / "results.json"
CARGO_MUTANTS = ROOT / "tools" / "cargo-mutants"
FEATURES = [
    "--workspace",
    "--exclude=forebay-python",
    "--features=forebay-broker/simulation,forebay-client/simulation",
]
TARGETS = ["--lib", *(f"--test={name}" for name in ("golden", "client", "broker", "simulator", "simdisk"))]
# Tests of what a build costs.
NOT_RUN = re.compile(r"^hostile::cost")
# Seconds. Tests that take longer by themselves are not run; several that take less share a process.
LONGEST, SHORT = 60.0, 1.0
MEMORY = 6 << 30
ENVIRONMENT = {
    # Not one of another copy: cargo would take what was built there for what is here.
    "CARGO_TARGET_DIR": str(FOLDER / "build"),
    "CARGO_TERM_COLOR": "never",
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "RUST_BACKTRACE": "0",
    # Debug builds keep the locals of all copies of a body on the stack.
    "RUST_MIN_STACK": str(64 << 20),
    "SIMDISK_SCRIPTS": "1",
    "SIMULATOR_SEEDS": "6",
}

SWITCH = """
#[doc(hidden)]
pub mod mutant {
    use std::io::Write;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ACTIVE: LazyLock<u32> =
        LazyLock::new(|| std::env::var("FOREBAY_MUTANT").map_or(0, |text| text.parse().unwrap()));
    static NOTES: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FOREBAY_REACHED").ok());
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    pub fn at(first: u32, last: u32) -> u32 {
        if let Some(path) = &*NOTES
            && !REACHED[first as usize].swap(true, Ordering::Relaxed)
        {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(format!("{first}\\n").as_bytes()).unwrap();
        }
        if (first..=last).contains(&*ACTIVE) { *ACTIVE } else { 0 }
    }
}
"""


class Source:
    """A file, by lines and columns as cargo-mutants counts them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (ROOT / name).read_text()
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, span: dict) -> tuple[int, int]:
        start, end = (
            self.lines[span[side]["line"] - 1] + span[side]["column"] - 1 for side in ("start", "end")
        )
        return start, end


@dataclass
class Mutant:
    """A change of ``start..end`` of a file, within the function ``outer``."""

    file: str
    name: str
    line: str
    # Counts mutants that are alike but for their place.
    number: int
    start: int
    end: int
    replacement: str
    outer: tuple[int, int]
    id: int = 0
    # The lowest id of a mutant of the same function.
    first: int = 0

    @property
    def key(self) -> str:
        return f"{self.file}: {self.name} [{self.line}]" + (f" #{self.number}" if self.number else "")


def listed(files: list[str]) -> list[Mutant]:
    command = [str(CARGO_MUTANTS), "--list", "--json", *files]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    sources: dict[str, Source] = {}
    functions: dict[str, list[tuple[int, int]]] = {}
    for item in found:
        source = sources.setdefault(item["file"], Source(item["file"]))
        if item["function"]:
            functions.setdefault(item["file"], []).append(source.span(item["function"]["span"]))
    mutants, alike = [], Counter()
    for item in found:
        source = sources[item["file"]]
        start, end = source.span(item["span"])
        around = [span for span in functions.get(item["file"], []) if span[0] <= start and end <= span[1]]
        if not around:
            print(f"not run, for it is in no function: {item['name']}")
            continue
        name = re.sub(r"^\S+:\d+:\d+: ", "", item["name"])
        line = source.text[source.lines[item["span"]["start"]["line"] - 1] :].split("\n", 1)[0].strip()
        if item["genre"] == "FnValue":
            line = "{"
        outer = min(around)
        mutant = Mutant(item["file"], name, line, 0, start, end, item["replacement"], outer)
        key = mutant.key
        mutant.number = alike[key]
        alike[key] += 1
        mutants.append(mutant)
    return mutants


def body(text: str, outer: tuple[int, int]) -> tuple[int, int]:
    """The braces of the function. Attributes and comments come before ``fn``."""
    declared = re.search(r"^[^\n/#]*\bfn\s", text[slice(*outer)], re.MULTILINE)
    if not declared:
        raise ValueError(text[slice(*outer)])
    at, depth = outer[0] + declared.end(), 0
    while text[at] != "{" or depth:
        depth += (text[at] in "([") - (text[at] in ")]")
        at += 1
    return at, outer[1]


def weave(name: str, mutants: list[Mutant]) -> dict[int, Mutant]:
    """Writes the file with all mutants in it. Returns the mutant of each of its lines that belongs to one."""
    source = Source(name)
    out, at, owners = "", 0, {}
    by_function: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        by_function.setdefault(mutant.outer, []).append(mutant)
    for outer, members in sorted(by_function.items()):
        start, end = body(source.text, outer)
        original = source.text[start:end]
        first = members[0].first
        last = max(member.id for member in members)
        # The mutant is known at run time only.
        head = source.text[at : outer[0]] + source.text[outer[0] : start].replace("const fn", "fn")
        out += head + f"{{ match forebay_base::mutant::at({first}, {last}) {{ 0 => {original}\n"
        for member in members:
            changed = source.text[start : member.start] + member.replacement + source.text[member.end : end]
            line = out.count("\n") + 1
            out += f"{member.id} => {changed}\n"
            owners |= dict.fromkeys(range(line, out.count("\n") + 1), member)
        out += "_ => unreachable!() } }"
        at = end
    (TREE / name).write_text(out + source.text[at:])
    return owners


def cargo(*words: str) -> list[dict]:
    command = ["cargo", *words, *FEATURES, "--message-format", "json"]
    run = subprocess.run(
        command, cwd=TREE, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith(b"{")]


def errors(messages: list[dict]) -> list[dict]:
    found = [message["message"] for message in messages if message["reason"] == "compiler-message"]
    return [message for message in found if message["level"].startswith("error")]


def spans(message: dict) -> list[dict]:
    """The places of an error, the most telling first; those of macros and notes included."""
    found = sorted(message["spans"], key=lambda span: not span["is_primary"])
    for span in list(found):
        while span["expansion"]:
            span = span["expansion"]["span"]
            found.append(span)
    return found + [span for child in message["children"] for span in child["spans"]]


def build(mutants: list[Mutant]) -> tuple[list[Mutant], dict[str, Path]]:
    """Compiles the mutants that compile. Returns them, and the test binaries."""
    copy(TREE)
    for name in {mutant.file for mutant in mutants}:
        members = [mutant for mutant in mutants if mutant.file == name]
        for mutant in members:
            mutant.first = min(member.id for member in members if member.outer == mutant.outer)
    inner = "#![allow(warnings, arithmetic_overflow, unconditional_panic, overflowing_literals)]\n"
    names = {mutant.file for mutant in mutants}
    owners = {name: weave(name, [mutant for mutant in mutants if mutant.file == name]) for name in names}
    # All crates depend on the one with the switch.
    switch = SWITCH.replace("COUNT", str(max(mutant.id for mutant in mutants) + 1))
    for library in sorted((TREE / "src").glob("*/lib.rs")):
        text = library.read_text().replace("#![cfg_attr", inner + "#![cfg_attr", 1)
        if library.parent.name == "base":
            text += f"\nextern crate self as forebay_base;\n{switch}"
        library.write_text(text)
    while found := errors(cargo("build", "--lib")):
        bad = set()
        for message in found:
            for span in spans(message):
                if owner := owners.get(span["file_name"], {}).get(span["line_start"]):
                    bad.add(owner.id)
                    break
            else:
                if message["spans"]:
                    raise SystemExit(message["rendered"])
        if not bad:
            raise SystemExit("\n".join(message["rendered"] for message in found))
        print(
            f"{len(bad)} do not compile: {[mutant.key for mutant in mutants if mutant.id in bad][:2]}",
            flush=True,
        )
        changed = {mutant.file for mutant in mutants if mutant.id in bad}
        mutants = [mutant for mutant in mutants if mutant.id not in bad]
        for name in changed:
            owners[name] = weave(name, [mutant for mutant in mutants if mutant.file == name])
    messages = cargo("test", "--no-run", *TARGETS)
    if found := errors(messages):
        raise SystemExit("\n".join(message["rendered"] for message in found))
    made = [
        message
        for message in messages
        if message["reason"] == "compiler-artifact" and message.get("executable")
    ]
    return mutants, {message["target"]["name"]: Path(message["executable"]) for message in made}


def limits() -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(binary: Path, tests: list[str], seconds: float, **environment: str) -> str | None:
    """Runs the tests until one fails. Returns which, or how it ended otherwise; nothing if they pass."""
    process = subprocess.Popen(
        [binary, "--exact", "--test-threads", "2", *tests],
        cwd=TREE,
        env=os.environ | ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        preexec_fn=limits,
    )
    late = threading.Event()

    def stop() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, stop)
    timer.start()
    failed = None
    for line in process.stdout:
        if match := re.match(r"test (\S+)(?: - should panic)? \.\.\. FAILED", line):
            failed = match[1]
            break
    timer.cancel()
    if failed:
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    status = process.wait()
    if failed:
        return failed
    return "time-out" if late.is_set() else f"status {status}" if status else None


def reached(binaries: dict[str, Path]) -> dict[int, list[tuple[float, str, str]]]:
    """For each function, by the first of its mutants: the tests that run it, with the time they take."""
    found: dict[int, list[tuple[float, str, str]]] = {}
    notes = FOLDER / "reached"
    for name, binary in binaries.items():
        terse = subprocess.run(
            [binary, "--list", "--format", "terse"], check=True, capture_output=True, text=True
        )
        tests = [line.removesuffix(": test") for line in terse.stdout.splitlines() if line.endswith(": test")]
        started = time.monotonic()
        for test in tests:
            if NOT_RUN.match(test):
                continue
            notes.unlink(missing_ok=True)
            begun = time.monotonic()
            if end := run(binary, [test], LONGEST, FOREBAY_REACHED=str(notes)):
                print(f"left out: {name} {test}: {end}", flush=True)
                continue
            seconds = time.monotonic() - begun
            for line in set(notes.read_text().split()) if notes.exists() else ():
                found.setdefault(int(line), []).append((seconds, name, test))
        print(f"{name}: {len(tests)} tests, {time.monotonic() - started:.0f} s", flush=True)
    return found


def distance(mutant: Mutant, name: str, test: str) -> int:
    """0 for a unit test of the mutant's module, 1 for one of its neighbours, 2 for others."""
    crate, _, inside = mutant.file.removeprefix("src/").partition("/")
    module = inside.removesuffix(".rs").removesuffix("/mod").removesuffix("lib").replace("/", "::")
    if name != f"forebay_{crate}" or not test.startswith(module.rpartition("::")[0]):
        return 2
    return 0 if test.startswith(f"{module}::") else 1


def verdict(mutant: Mutant, tests: list[tuple[float, str, str]], binaries: dict[str, Path]) -> str | None:
    """The test that kills the mutant."""
    batches: dict[tuple[int, float, int], list[tuple[float, str, str]]] = {}
    for seconds, name, test in sorted(tests):
        order = distance(mutant, name, test), seconds if seconds > SHORT else 0.0, list(binaries).index(name)
        batches.setdefault(order, []).append((seconds, name, test))
    for _, batch in sorted(batches.items()):
        limit = 10 + 6 * sum(seconds for seconds, _, _ in batch)
        name = batch[0][1]
        if end := run(binaries[name], [test for _, _, test in batch], limit, FOREBAY_MUTANT=str(mutant.id)):
            return f"{name} {end}"
    return None


def harmless(mutant: Mutant, known: list[dict]) -> bool:
    alike = [item for item in known if (item["file"], item["name"]) == (mutant.file, mutant.name)]
    return any(item.get("at", "") in mutant.line for item in alike)


def report(results: dict[str, str], files: set[str]) -> int:
    print(f"\n{'':36}  listed  viable  killed harmless survived")
    rows = {
        name: Counter(value.split()[0] for key, value in results.items() if key.startswith(f"{name}:"))
        for name in files
    }
    total = sum(rows.values(), Counter())
    for name, row in [*sorted(rows.items()), ("total", total)]:
        listed = row.total()
        figures = listed, listed - row["unviable"], row["killed"], row["harmless"], row["survived"]
        print(f"{name:36}" + "".join(f"{figure:8} " for figure in figures))
    return 1 if total["survived"] else 0


def main() -> int:
    again = "--again" in sys.argv
    os.nice(12)
    FOLDER.mkdir(parents=True, exist_ok=True)
    known = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text()).get("survivor", [])
    mutants = listed([word for word in sys.argv[1:] if word != "--again"])
    files = {mutant.file for mutant in mutants}
    results: dict[str, str] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if again:
        wanted = ("survived", "harmless")
        mutants = [mutant for mutant in mutants if results.get(mutant.key, "survived").startswith(wanted)]
    else:
        results = {key: value for key, value in results.items() if key.split(":")[0] not in files}
    mutants.sort(key=lambda mutant: (mutant.file, mutant.outer, mutant.start))
    for count, mutant in enumerate(mutants, 1):
        mutant.id = count
    print(f"{len(mutants)} mutants in {len(files)} files", flush=True)
    if mutants:
        viable, binaries = build(mutants)
        compiled = {mutant.id for mutant in viable}
        results |= {mutant.key: "unviable" for mutant in mutants if mutant.id not in compiled}
        os.nice(7)
        reaching = reached(binaries)
        for mutant in viable:
            begun = time.monotonic()
            tests = reaching.get(mutant.first, [])
            word = "harmless" if harmless(mutant, known) else "survived"
            killer = verdict(mutant, tests, binaries)
            results[mutant.key] = f"killed by {killer}" if killer else f"{word} {len(tests)} tests"
            print(f"{mutant.key}: {results[mutant.key]} ({time.monotonic() - begun:.1f} s)", flush=True)
            RESULTS.write_text(json.dumps(results, indent=1))
    return report(results, files)


if __name__ == "__main__":
    sys.exit(main())
