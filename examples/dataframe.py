"""DataFrames: the rows of a table become messages, and messages become a table again.

python examples/dataframe.py [URL]      default: a broker in this process
"""

import asyncio
import sys

import pyarrow as pa
import pyarrow.json

import forebay

FLIGHTS = pa.table(
    {
        "carrier": ["UA", "AA", "UA", "B6"],
        "distance": [1400, 1089, 1416, 1576],
    }
)


async def main(url: str) -> None:
    async with forebay.connect(url) as client:
        async with client.consumer("flights", "report", position="earliest") as consumer:
            async with client.producer("flights", compression="zstd") as producer:
                ids = await producer.send_frame(FLIGHTS, key="carrier")  # each row as a JSON object
                print(f"{len(ids)} rows stored")

            received = await consumer.read_frame(max_rows=len(ids), timeout=10)
            print("columns:", ", ".join(received.column_names))

    lines = b"\n".join(received["value"].to_pylist())
    flights = pyarrow.json.read_json(pa.BufferReader(lines))
    for row in flights.group_by("carrier").aggregate([("distance", "sum")]).to_pylist():
        print(f"{row['carrier']}: {row['distance_sum']} miles")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "embedded:"))
