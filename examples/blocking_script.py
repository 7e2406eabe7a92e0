"""Blocking: send the lines of a file, then read them back from the beginning. No event loop.

python examples/blocking_script.py [URL] < FILE
"""

import sys

from forebay import QueueFull, Timeout, blocking


def main(url: str) -> None:
    with blocking.connect(url) as client:
        sent = 0
        with client.producer("lines") as producer:
            for line in sys.stdin.buffer:
                try:
                    producer.send_nowait(line.rstrip(b"\n"))
                except QueueFull:
                    producer.flush()  # waits until the broker has everything, and raises what failed
                    producer.send_nowait(line.rstrip(b"\n"))
                sent += 1
            producer.flush()
        print(f"{sent} lines stored")

        with client.reader("lines", position="earliest") as reader:
            for number in range(sent):
                try:
                    message = reader.receive(timeout=10)
                except Timeout:
                    sys.exit(f"line {number} did not arrive")
                print(f"{message.id}: {message.data.decode()}")


main(sys.argv[1] if len(sys.argv) > 1 else "embedded:")
