"""The embedded broker in a process of its own, for tests: ``embedded.py '{"durability": "memory"}'``.

Prints its URL as the first line of JSON, then answers each line of JSON on standard input, ``[method,
arguments...]``, with ``{"ok": result}`` or ``{"error": text}``. The end of standard input ends it, so it
never outlives the tests.
"""

import json
import sys

import forebay


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    with forebay.Broker(**options) as broker:
        print(json.dumps({"ok": broker.url}), flush=True)
        for line in sys.stdin:
            method, *arguments = json.loads(line)
            try:
                value = getattr(broker, method)
                answer = {"ok": value(*arguments) if callable(value) else value}
            except forebay.Error as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer, default=str), flush=True)


main()
