"""The floor: the cost of the same work with SQLite alone and with a pair of asyncio streams alone."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from benches.clock import Clock

BATCH_MESSAGES, BATCH_BYTES = 1000, 128 << 10
GATHER_BYTES = 1 << 20
# Around the payload of a message sent alone, and of the answer to it, on Pulsar's wire.
SEND_OVERHEAD, RECEIPT = 58, 24


def bare_sqlite(
    url: str, topic: str, count: int, size: int, messages: int = 0, together: int = 0
) -> dict[str, float]:
    """The embedded broker's commits by Python's ``sqlite3``, with the store's pragmas, each on disk before
    the next.

    Args:
        messages: in a row; by default those of a batch.
        together: rows in a transaction; by default 1 MiB of them.
    """
    messages = messages or min(BATCH_MESSAGES, BATCH_BYTES // size)
    body = bytes(messages * size)
    batches = max(count // messages, 1)
    together = together or max(GATHER_BYTES // len(body), 1)
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "wal_autocheckpoint = 4000",
            "journal_size_limit = 67108864",
            "temp_store = MEMORY",
        ):
            store.execute(f"PRAGMA {pragma}")
        store.execute(
            "CREATE TABLE entry (id INTEGER PRIMARY KEY, last_index INTEGER, stored_ms INTEGER, body BLOB)"
        )
        clock = Clock(batches * messages)
        for start in range(0, batches, together):
            store.execute("BEGIN IMMEDIATE")
            store.executemany(
                "INSERT INTO entry VALUES (?, ?, ?, ?)",
                ((id, id * messages, 0, body) for id in range(start, min(start + together, batches))),
            )
            store.execute("COMMIT")
        report = clock.stop()
        store.close()
        return report


async def _answer(frame: int, window: int, port: Connection) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receipt = bytes(RECEIPT)
        try:
            while True:
                for _ in range(window):
                    await reader.readexactly(frame)
                writer.write(receipt)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def _server(frame: int, window: int, port: Connection) -> None:
    asyncio.run(_answer(frame, window, port))


async def bare_asyncio(url: str, topic: str, count: int, size: int, window: int = 1) -> dict[str, float]:
    """Asyncio streams to another process: frames as long as a SEND, each written and read by itself. Each
    ``window`` of them waits for one answer, as long as a receipt, before the next."""
    body = bytes(size + SEND_OVERHEAD)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=_server, args=(len(body), window, there), daemon=True
    )
    server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.recv())

        async def exchange(times: int) -> None:
            for _ in range(times):
                for _ in range(window):
                    writer.write(body)
                await reader.readexactly(RECEIPT)

        await exchange(1)
        clock = Clock(count // window * window)
        await exchange(count // window)
        report = clock.stop()
        writer.close()
        return report
    finally:
        server.kill()
        server.join()
