"""Client and broker killed in turn, with all protocols under load and a neighbour that reads the database."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from support.campaign.kills import kills


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_sixty_kills_lose_nothing_acknowledged_and_repeat_only_what_may_be_repeated(
    tmp_path: Path,
) -> None:
    started = time.monotonic()
    await asyncio.wait_for(kills(tmp_path, rounds=60), 880)
    print(f"{time.monotonic() - started:.0f} s")
