"""Randomness that can be repeated."""

from __future__ import annotations

import random


def seeded() -> random.Random:
    """Randomness whose seed is printed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)
