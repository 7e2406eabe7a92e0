"""Benchmarks: one runner, and a folder of cases and peers for each protocol.

python -m benches.run pulsar | mqtt | tubemq | operating | curves | footprint | quick [OPTION...]
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Brokers and certificates come from tests/support.
sys.path.append(str(ROOT / "tests"))
