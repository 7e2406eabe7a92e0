"""The client process of a campaign: ``python -m support.campaign.client FOLDER PROTOCOL=URL...``.

Prints ``started``. A line on standard input ends the senders; then it prints how many of their futures did
not end. The end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

from support.campaign.flows import PROTOCOLS

DRAIN = 120.0


async def guarded() -> None:
    try:
        await main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # The thread that waits for standard input would keep the process.
        os._exit(1)


async def main() -> None:
    folder = Path(sys.argv[1])
    clients = [
        PROTOCOLS[protocol](folder, url) for protocol, url in (word.split("=", 1) for word in sys.argv[2:])
    ]
    told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    # One after the other would leave a protocol without load where kills are frequent.
    await asyncio.gather(*(client.start() for client in clients))
    print("started", flush=True)
    while not told.done():
        for client in clients:
            client.check()
        await asyncio.wait([told], timeout=0.1)
    if told.result():
        pending = await asyncio.gather(*(client.drain(DRAIN) for client in clients))
        print(sum(pending), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    for client in clients:
        client.check()
    await asyncio.gather(*(client.close() for client in clients))


if __name__ == "__main__":
    # Asked what it is doing when nothing moves.
    faulthandler.register(signal.SIGUSR1)
    asyncio.run(guarded())
