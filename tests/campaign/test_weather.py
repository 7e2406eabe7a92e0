"""Clients of all protocols behind a proxy that cuts, swallows, stalls, slices, delays and refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.campaign.targets import embedded, mosquitto
from support.campaign.weather import storm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_bad_weather_before_the_embedded_broker_loses_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path) as target:
        await asyncio.wait_for(storm(tmp_path, target, seconds=30, every=10), 880)


@pytest.mark.real_mqtt
async def test_bad_weather_before_mosquitto_loses_nothing(tmp_path: Path) -> None:
    with mosquitto() as target:
        await asyncio.wait_for(storm(tmp_path, target, seconds=30, every=10), 880)
