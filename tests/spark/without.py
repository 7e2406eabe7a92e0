"""without.py MASTER URL TOPIC: prints as JSON what users see whose Spark workers have a Python without the
package, which PYSPARK_PYTHON names."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from job import session

import forebay.spark


def said(act: Any) -> list[str]:
    try:
        act()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def main(master: str, url: str, topic: str) -> None:
    # The workers inherit it.
    os.environ.pop("PYTHONPATH", None)
    spark = session(master)
    frame = spark.range(10).selectExpr("cast(id as string) value")
    writer = frame.write.format("forebay").options(url=url, topic=topic, value="value").mode("append")
    reader = spark.read.format("forebay").options(url=url, subscribe=topic)
    try:
        answers = {"write": said(lambda: forebay.spark.write(frame, url, topic, value="value"))}
        forebay.spark.register(spark)
        answers["save"] = said(writer.save)
        answers["load"] = said(lambda: reader.load().count())
        print(json.dumps(answers))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
