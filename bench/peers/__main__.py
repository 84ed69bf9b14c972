"""Plimsoll beside its peers, on this machine: the same loads, in alternating rounds.

    python -m bench.peers [--row NAME] [--system NAME] [--rounds 3] [--before CHECKOUT]

Every system has three processes on loopback, each in a session of its own. A round measures the
systems one after another; the next begins with another system. Entries go to
`build/bench/results.json`, the table is printed. A system that is missing is named and left out.
Each load and each wait has a bound.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench.peers.comparison import Comparison, available
from bench.peers.results import Results
from bench.peers.rows import ROWS, Scale, of_name
from bench.peers.systems.apache_kafka import Kafka
from bench.peers.systems.floor import CFloor, PythonFloor
from bench.peers.systems.jetstream import JetStream
from bench.peers.systems.plimsoll import Plimsoll, of_checkout
from bench.peers.systems.system import System
from bench.peers.table import COLUMNS, lines

SYSTEMS: tuple[type[System], ...] = (Plimsoll, Kafka, JetStream, CFloor, PythonFloor)


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", action="append", help="a name, or a part of names")
    parser.add_argument("--system", action="append", help="one of " + ", ".join(COLUMNS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of a load at a rate")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--before", type=Path, help="another checkout of Plimsoll, as a system")
    return parser.parse_args()


def main() -> int:
    arguments = asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [row for name in arguments.row or [""] for row in of_name(name)]
    if not rows:
        print("rows: " + "; ".join(row.name for row in ROWS), file=sys.stderr)
        return 2
    every = list(SYSTEMS)
    if arguments.before:
        every.insert(1, of_checkout(arguments.before.resolve()))
    named = arguments.system or [one.name for one in every]
    systems = available([one for one in every if one.name in named])
    results = Results()
    results.forget((row.name for row in rows), named)
    scale = Scale(seconds=arguments.seconds, megabytes=arguments.megabytes)
    comparison = Comparison(rows, scale, results)
    for _ in range(arguments.rounds):
        comparison.round(systems)
    columns = COLUMNS if not arguments.before else (COLUMNS[0], "before", *COLUMNS[1:])
    print("\n".join(lines(results, columns)))
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())
