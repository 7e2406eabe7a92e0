"""``forebay sql``: a query over topics, by DuckDB."""

# DuckDB is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingImports=false

from __future__ import annotations

import argparse
import csv
import datetime
import json
import shutil
import sys
from pathlib import Path
from typing import Any, cast

from forebay import frames, protocols
from forebay.errors import UnknownError, Unsupported

from ._shared.failed import Failed
from ._shared.options import moment, scopes
from ._shared.subscribe import payload_to_json

NEEDS = "sql needs DuckDB and pyarrow: pip install duckdb 'forebay[frames]'"
_LOT = 1000
"""Rows that are fetched at a time."""


def run(given: argparse.Namespace) -> int:
    """Runs the query; its tables are topics."""
    base, _ = protocols.split_url(given.url)
    protocol = protocols.of(base).key
    options = scopes(given.options, protocol)
    arguments = {**options["client"], **options["consumer"]}
    if given.begin is not None:
        arguments["start"] = _start(given.begin)
    if protocol == "pulsar":
        # The fields of records are columns.
        arguments |= {"columns": "pulsar", "decode": True}
    try:
        import duckdb
    except ImportError:
        raise Unsupported(NEEDS) from None
    engine: Any = duckdb
    with engine.connect() as connection:
        try:
            for topic in sorted(tables_of(connection, given.query)):
                # DuckDB reads files by their names, too.
                if not Path(topic).is_file():
                    connection.register(topic, _scan(given.url, topic, arguments))
            _print(given, connection)
        except engine.ProgrammingError as error:
            raise Failed(f"the query fails: {error}") from None
        except engine.Error as error:
            raise UnknownError(f"the query fails: {error}", retriable=False) from None
    return 0


def tables_of(connection: Any, query: str) -> set[str]:
    """The names of tables in a query, without those that it defines.

    Raises:
        Failed: it is no query.
    """
    ((text,),) = connection.execute("select json_serialize_sql(?::varchar)", [query]).fetchall()
    said = json.loads(text)
    if said.get("error") or not said.get("statements"):
        raise Failed(f"the query fails: {said.get('error_message', 'it is empty')}")
    names: set[str] = set()
    own: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found = cast("dict[str, Any]", node)
            if found.get("type") == "BASE_TABLE" and not found.get("schema_name"):
                names.add(str(found["table_name"]))
            if isinstance(ctes := found.get("cte_map"), dict):
                own.update(str(one["key"]) for one in cast("Any", ctes).get("map", ()))
            for value in found.values():
                walk(value)
        elif isinstance(node, list):
            for value in cast("list[Any]", node):
                walk(value)

    walk(said)
    return names - own


def _scan(url: str, topic: str, arguments: dict[str, Any]) -> frames.Scan:
    try:
        return frames.scan(url, topic, **arguments)
    except ImportError:
        raise Unsupported(NEEDS) from None


def _start(text: str) -> Any:
    return text if text in ("earliest", "latest") else moment("--from", text)


def _print(given: argparse.Namespace, connection: Any) -> None:
    if not (given.json or given.csv):
        columns = shutil.get_terminal_size().columns
        connection.sql(given.query).show(max_width=columns, max_rows=given.rows)
        return
    result = connection.execute(given.query)
    names: list[str] = [column[0] for column in result.description or ()]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if given.csv:
        writer.writerow(names)
    while rows := result.fetchmany(_LOT):
        for row in rows:
            values = [_plain(value) for value in row]
            if given.csv:
                writer.writerow(values)
            else:
                print(json.dumps(dict(zip(names, values, strict=True)), default=str))


def _plain(value: Any) -> Any:
    """A value as JSON and CSV have it: bytes as text, or as base64 if they are not."""
    if isinstance(value, bytes):
        (text,) = payload_to_json(value).values()
        return text
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value
