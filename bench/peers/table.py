"""The table of the comparison, from the results file.

    python -m bench.peers.table [--write]

With `--write` it goes into docs/benchmarks.md; not if other programs used the machine meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from bench.marked import write
from bench.peers.recorded import OTHERS_CORES_MAX
from bench.peers.results import Results, Spread
from bench.peers.rows import ROWS

COLUMNS = ("Plimsoll", "Kafka", "JetStream", "C floor", "Python floor")
UNITS = {
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "brokers_us_a_record": "brokers, µs a record",
    "clients_us_a_record": "client, µs a record",
    "mb_per_s": "MB/s",
    "brokers_ms_a_mb": "brokers, ms a MB",
    "clients_ms_a_mb": "client, ms a MB",
    "first_s": "first record, s",
    "brokers_cores": "brokers, cores",
    "controllers_cores": "controller, cores",
    "resident_mb": "MB a broker",
    "worst_s": "worst, s",
    "median_s": "median, s",
    "seconds": "s",
    "p99_ratio": "p99 beside it, times that without",
}


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2 if value >= 0.1 else 3}f}"


def cell(found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{number(found.median)} ({number(found.least)}–{number(found.most)})"


def lines(results: Results, columns: tuple[str, ...] = COLUMNS) -> Iterator[str]:
    yield f"| | | {' | '.join(columns)} |"
    yield f"|---|---|{'---|' * len(columns)}"
    for row in ROWS:
        name = row.name
        for figure in row.shown:
            cells = [cell(results.spread(row.name, one, figure)) for one in columns]
            if set(cells) == {"–"}:
                continue
            yield f"| {name} | {UNITS[figure]} | {' | '.join(cells)} |"
            name = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    results = Results()
    table = list(lines(results))
    print("\n".join(table))
    if arguments.write:
        others = results.others_cores(row.name for row in ROWS)
        if others > OTHERS_CORES_MAX:
            print(
                f"Not written: other programs used {others:.2f} of a processor in a round. Stop "
                "them, and measure again.",
                file=sys.stderr,
            )
            return 1
        write("peers", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
