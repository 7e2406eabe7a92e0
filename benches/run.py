"""Measures Forebay beside other clients on the same brokers, interleaved; prints a table and the targets.

    python -m benches.run pulsar  [OPTION...]    make bench        BENCH="OPTION..."
    python -m benches.run mqtt    [OPTION...]    make bench-mqtt   BENCH="OPTION..."
    python -m benches.run tubemq  [OPTION...]    make bench-tubemq BENCH="OPTION..."
    python -m benches.run operating [OPTION...]  make bench-operating BENCH="OPTION..."
    python -m benches.run curves  [OPTION...]    make bench-curves BENCH="OPTION..."
    python -m benches.run footprint [OPTION...]  make bench-footprint BENCH="OPTION..."
    python -m benches.run quick   [OPTION...]    make bench-quick  BENCH="OPTION..."

Each case runs in a process of its own, and the median of the rounds is shown. Rates of one run compare with
each other, not with those of another run or machine. A missed target does not fail the run; a case that
fails does.

The brokers of --broker, all of them by default:
    pulsar: embedded, embedded-fsync, pulsar    Spark's rows are measured here
    mqtt:   fake, mosquitto, embedded           fake only acknowledges and sends: the client's own cost
    tubemq: tubemq, embedded, embedded-fsync
    operating: embedded                         what its page, permissions and log cost
    curves: embedded                            what grows with the number of topics, messages, ...
    footprint: embedded                         imports, sizes, idle clients and brokers
    quick:  embedded                            beside bare floors; kept in benches/history

With the jar of StreamNative's pulsar-spark for Spark 3.5, which PULSAR_SPARK_JAR names, Spark's rows are
measured beside that connector on Apache Pulsar.
"""

from __future__ import annotations

import argparse
import re

from benches import suite
from benches.curves.suite import SUITE as CURVES
from benches.footprint.suite import SUITE as FOOTPRINT
from benches.mqtt.suite import SUITE as MQTT
from benches.operating.suite import SUITE as OPERATING
from benches.pulsar.suite import SUITE as PULSAR
from benches.quick.suite import SUITE as QUICK
from benches.tubemq.suite import SUITE as TUBEMQ

SUITES = {one.name: one for one in (PULSAR, MQTT, TUBEMQ, OPERATING, CURVES, FOOTPRINT, QUICK)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benches.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    protocols = parser.add_subparsers(dest="protocol", required=True, metavar=" | ".join(SUITES))
    for one in SUITES.values():
        options = protocols.add_parser(one.name)
        options.add_argument(
            "--rounds", type=int, default=one.rounds, help="rounds of which the median is shown, %(default)s"
        )
        what = "the largest points" if one is CURVES else "the number of messages"
        options.add_argument("--scale", type=float, default=1.0, help=f"factor of {what}")
        options.add_argument(
            "--broker",
            action="append",
            choices=one.brokers,
            help="may be given several times; all by default",
        )
        options.add_argument("--only", default="", metavar="REGEX", help="measure the rows whose names match")
        if one is CURVES:
            options.add_argument(
                "--limit",
                type=float,
                default=60.0,
                metavar="SECONDS",
                help="time of a point after which larger ones are skipped; four times as much ends it",
            )
        options.add_argument(
            "--json", default=one.file, metavar="FILE", help="results, %(default)s by default"
        )
    given = parser.parse_args()
    chosen = SUITES[given.protocol]
    plan = suite.Plan(
        given.rounds,
        given.scale,
        lambda name: bool(re.search(given.only, name)),
        getattr(given, "limit", suite.Plan.limit),
    )
    failures = suite.run(chosen, given.broker or list(chosen.brokers), plan, given.json)
    if failures:
        raise SystemExit(f"{failures} measurements failed")


if __name__ == "__main__":
    main()
