"""compile_pyspark.py: adds compiled modules to the ``pyspark.zip`` of this environment.

Spark's Python workers import PySpark from that archive, which has sources only: each worker compiles them
again, for up to a second. Without this the tests of Spark take about a fifth longer.
"""

from __future__ import annotations

import compileall
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

import pyspark

OF_TESTS = re.compile(r"/tests/|/testing/")


def main() -> None:
    path = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    whole = path.with_suffix(".new")
    shutil.copy2(path, whole)
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(whole, "a", zipfile.ZIP_DEFLATED) as archive,
    ):
        present = set(archive.namelist())
        archive.extractall(folder)
        # `legacy`: beside the sources, where an archive is searched. What does not compile is left
        # as it is.
        compileall.compile_dir(
            folder, quiet=2, legacy=True, rx=OF_TESTS, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
        )
        for compiled in sorted(Path(folder).rglob("*.pyc")):
            name = compiled.relative_to(folder).as_posix()
            if name not in present:
                archive.write(compiled, name)
    whole.replace(path)


if __name__ == "__main__":
    main()
