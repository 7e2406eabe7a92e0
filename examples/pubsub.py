"""asyncio: a producer and two consumers of one shared subscription.

python examples/pubsub.py [URL]      default: a broker in this process
"""

import asyncio
import sys

import forebay

ORDERS = 1000


async def consume(client, name, done):
    async with client.consumer("orders", "billing", type="shared", position="earliest") as consumer:
        async for message in consumer:
            await consumer.ack(message)
            await done.put(name)


async def main(url: str) -> None:
    async with forebay.connect(url) as client:
        done: asyncio.Queue[str] = asyncio.Queue()
        workers = [asyncio.create_task(consume(client, name, done)) for name in ("ann", "bob")]
        async with client.producer("orders", compression="zstd") as producer:
            ids = await producer.send_many([b"order %d" % number for number in range(ORDERS)])
            print(f"{len(ids)} orders stored, the last one as {ids[-1]}")
        counts = {"ann": 0, "bob": 0}
        for _ in range(ORDERS):
            counts[await done.get()] += 1
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        print("acknowledged:", counts)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "embedded:"))
