"""``soak.py MINUTES [PART...]``: the campaigns for as long as one likes, a share of the time for each part.

The parts are kills, embedded, mosquitto, pulsar, tubemq and spark; all by default.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import traceback
from pathlib import Path

from support.campaign import spark
from support.campaign.kills import kills
from support.campaign.targets import embedded, mosquitto, pulsar, tubemq
from support.campaign.weather import storm

PARTS = ("kills", "embedded", "mosquitto", "pulsar", "tubemq", "spark")


def run(part: str, folder: Path, seconds: float) -> None:
    if part == "kills":
        asyncio.run(kills(folder, seconds=seconds))
        return
    if part == "spark":
        spark.soak(seconds)
        return
    targets = {
        "embedded": lambda: embedded(folder),
        "mosquitto": mosquitto,
        "pulsar": pulsar,
        "tubemq": tubemq,
    }
    with targets[part]() as target:
        asyncio.run(storm(folder, target, seconds=seconds))


def main() -> int:
    minutes, parts = float(sys.argv[1]), sys.argv[2:] or list(PARTS)
    failed: list[str] = []
    for part in parts:
        print(f"\n==> {part}, {minutes / len(parts):.1f} min", flush=True)
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"forebay-soak-{part}-"))
        try:
            run(part, folder, minutes * 60 / len(parts))
        except Exception:
            traceback.print_exc()
            failed.append(part)
            print(f"<== {part}: FAILED; the ledger is in {folder}", flush=True)
        else:
            print(
                f"<== {part}: ok, {time.monotonic() - started:.0f} s; the ledger is in {folder}", flush=True
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
