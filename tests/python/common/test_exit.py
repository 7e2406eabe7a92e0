"""Processes that end at any moment and in any way: with the status they chose, without output of ours on
standard error, and without a hang."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.pulsar.harness import EmbeddedPulsar
from support.waiting import PATIENCE

LIMIT = 2.0
"""Seconds from the moment a process begins to end until its end."""
ATTEMPTS = 3
"""A wait of ours is too long each time. Waits for a processor, which all of a process's threads, its children
and the broker may have one after the other, are not."""

ASYNC = """
import asyncio, os, sys, threading, time
import forebay
sys.excepthook = lambda *_: None       # an exception of the test's own is no noise
url, delay = sys.argv[1], float(sys.argv[2])
ending = lambda: print(time.time(), flush=True)

async def work(client):
    consumer = await client.consumer("exit-" + str(os.getpid()), "s")
    producer = await client.producer("exit-" + str(os.getpid()))
    async def send():
        try:
            while True:
                await asyncio.gather(*[producer.send(b"x" * 100) for _ in range(100)])
        except forebay.Error:
            pass                       # this task is never awaited, and its end prints nothing either
    sending = asyncio.ensure_future(send())
    async for message in consumer:
        consumer.ack(message)

async def main(body):
    client = await forebay.connect(url)
    working = asyncio.ensure_future(work(client))
    await asyncio.sleep(delay)
    return await body(client, working)
"""

BLOCKING = """
import os, sys, threading, time
import forebay
sys.excepthook = lambda *_: None
threading.excepthook = lambda *_: None
url, delay = sys.argv[1], float(sys.argv[2])
ending = lambda: print(time.time(), flush=True)
client = forebay.blocking.connect(url)

def work():
    consumer = client.consumer("exit-" + str(os.getpid()), "s")
    producer = client.producer("exit-" + str(os.getpid()))
    while True:
        producer.send_many([b"x" * 100] * 100)
        consumer.ack_many(consumer.receive_many(1000, timeout=1))
threading.Thread(target=work, daemon=True).start()
time.sleep(delay)
"""

CASES: dict[str, tuple[str, int]] = {
    "returns": (
        ASYNC
        + """
async def body(client, working):
    ending()
asyncio.run(main(body))
""",
        0,
    ),
    "closes": (
        ASYNC
        + """
async def body(client, working):
    ending()
    working.cancel()
    await client.close()
asyncio.run(main(body))
""",
        0,
    ),
    "sys_exit": (
        ASYNC
        + """
async def body(client, working):
    ending()
    sys.exit(3)
asyncio.run(main(body))
""",
        3,
    ),
    "exception": (
        ASYNC
        + """
async def body(client, working):
    ending()
    raise RuntimeError("planned")
asyncio.run(main(body))
""",
        1,
    ),
    "cancelled": (
        ASYNC
        + """
async def body(client, working):
    ending()
    asyncio.current_task().cancel()
    await asyncio.sleep(10)
try:
    asyncio.run(main(body))
except asyncio.CancelledError:
    sys.exit(4)
""",
        4,
    ),
    "loop_stopped_and_closed": (
        ASYNC
        + """
import warnings, logging
logging.disable(logging.CRITICAL)      # asyncio says which tasks were pending
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
async def body(client, working):
    ending()
    loop.stop()
    await asyncio.sleep(10)
task = loop.create_task(main(body))
loop.run_forever()
loop.close()
""",
        0,
    ),
    "interrupted": (
        ASYNC
        + """
import signal
# A job of a shell may inherit it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

async def body(client, working):
    ending()
    os.kill(os.getpid(), 2)
    await asyncio.sleep(10)
asyncio.run(main(body))
""",
        -signal.SIGINT,
    ),
    "os_exit": (
        ASYNC
        + """
async def body(client, working):
    ending()
    os._exit(5)
asyncio.run(main(body))
""",
        5,
    ),
    "two_loops_in_a_row": (
        ASYNC
        + """
async def body(client, working):
    pass
asyncio.run(main(body))
asyncio.run(main(body))
ending()
""",
        0,
    ),
    "fork_and_the_child_ends_at_once": (
        ASYNC
        + """
async def body(client, working):
    ending()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(main(body))
""",
        0,
    ),
    "fork_and_the_child_ends_like_any_process": (
        BLOCKING
        + """
ending()
child = os.fork()
if child == 0:
    sys.exit(6)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
""",
        0,
    ),
    "fork_and_the_child_uses_the_old_client": (
        BLOCKING
        + """
ending()
child = os.fork()
if child == 0:
    try:
        client.producer("from-the-child")
    except forebay.errors.ForkError:
        os._exit(7)
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
        0,
    ),
    "fork_and_the_child_makes_a_client": (
        BLOCKING
        + """
ending()
child = os.fork()
if child == 0:
    status = 9
    try:
        with forebay.blocking.connect(url) as own, own.producer("exit-child") as producer:
            producer.send(b"x")
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
        0,
    ),
    "fork_while_a_function_supplies_a_token": (
        """
import os, sys, threading, time
import forebay
called, release = threading.Event(), threading.Event()

def token():
    called.set()
    release.wait()
    return "token"
connecting = threading.Thread(target=lambda: forebay.blocking.connect(sys.argv[1], token=token).close())
connecting.start()
called.wait()
print(time.time(), flush=True)
for _ in range(4):
    child = os.fork()
    if child == 0:
        sys.exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
release.set()
connecting.join()
""",
        0,
    ),
    "blocking_returns": (BLOCKING + "ending()\n", 0),
    "blocking_sys_exit": (BLOCKING + "ending()\nsys.exit(3)\n", 3),
    "blocking_exception": (BLOCKING + "ending()\nraise RuntimeError('planned')\n", 1),
    "blocking_closes_while_a_thread_works": (BLOCKING + "ending()\nclient.close()\n", 0),
    "broker_in_the_process": (
        """
import sys, time
import forebay
broker = forebay.Broker()
client = forebay.blocking.connect(broker.url)
producer = client.producer("t")
for _ in range(200):
    producer.send_nowait(b"x")
time.sleep(float(sys.argv[2]))
print(time.time(), flush=True)
""",
        0,
    ),
    "fork_beside_a_broker_in_the_process": (
        """
import os, sys, time
import forebay
broker = forebay.Broker()
client = forebay.blocking.connect("embedded:")
producer = client.producer("t")
producer.send(b"x")
print(time.time(), flush=True)
child = os.fork()
if child == 0:
    sys.exit(6)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
""",
        0,
    ),
    "nothing_but_an_import": (
        "import time, forebay, forebay._aio.connect\nprint(time.time(), flush=True)\n",
        0,
    ),
}


@pytest.fixture(scope="module")
def url() -> Any:
    broker = EmbeddedPulsar(durability="memory")
    yield broker.url
    broker.stop()


class Late(str):
    """A process that ended as it should, but too late."""


def run(script: str, url: str, delay: float, expected: int) -> str | None:
    """Returns the fault, if there is one."""
    fault = None
    for _ in range(ATTEMPTS):
        fault = run_once(script, url, delay, expected)
        if not isinstance(fault, Late):
            break
    return fault


def run_once(script: str, url: str, delay: float, expected: int) -> str | None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", script, url, str(delay)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=delay + 100)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return f"delay {delay:.3f}: it hung; said {out!r} {err[-2000:]!r}"
    ended = time.time()
    if process.returncode != expected:
        return f"delay {delay:.3f}: status {process.returncode}, not {expected}; said {err[-2000:]!r}"
    if err:
        return f"delay {delay:.3f}: it said {err[-2000:]!r}"
    took = ended - float(out.split()[0])
    if took > LIMIT:
        return Late(f"delay {delay:.3f}: {took:.1f} s to end, {ATTEMPTS} times")
    return None


def several(case: str, url: str, count: int) -> None:
    script, expected = CASES[case]
    chance = random.Random(case)
    delays = [0.0, *(chance.random() * 0.25 for _ in range(count - 1))]
    with ThreadPoolExecutor(2) as pool:
        wrong = [
            result for result in pool.map(lambda delay: run(script, url, delay, expected), delays) if result
        ]
    assert not wrong, f"{len(wrong)} of {count} processes:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("case", CASES)
def test_a_process_may_end_at_once(case: str, url: str) -> None:
    several(case, url, 1)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", CASES)
def test_a_process_may_end_at_any_moment(case: str, url: str) -> None:
    several(case, url, 11)


HANGING = {
    "listeners": """
import threading, time, sys, forebay
client = forebay.blocking.connect(sys.argv[1])
begun = threading.Semaphore(0)
def hang(message):
    begun.release()
    time.sleep(3600)
consumer = client.consumer("hanging-listeners", "s")
listeners = [consumer.listen(hang, ahead=1) for _ in range(80)]
producer = client.producer("hanging-listeners")
for _ in range(80):
    producer.send(b"x")
    begun.acquire()
""",
    "callbacks of the drop-in": """
import threading, time, sys
import forebay.compat.pulsar as pulsar
client = pulsar.Client(sys.argv[1])
begun = threading.Semaphore(0)
def hang(result, id):
    begun.release()
    time.sleep(3600)
producers = [client.create_producer("hanging-callbacks") for _ in range(80)]
for producer in producers:
    producer.send_async(b"x", hang)
    begun.acquire()
""",
}


@pytest.mark.parametrize("what", HANGING)
def test_threads_that_hang_are_waited_for_together_when_the_process_ends(what: str, url: str) -> None:
    """A second for each of them would be more than a minute."""
    script = [sys.executable, "-W", "ignore::ResourceWarning", "-c", HANGING[what], url]
    done = subprocess.run(script, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
