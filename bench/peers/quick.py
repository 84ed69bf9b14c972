"""`make bench-quick`: within five minutes, whether a produce costs more than recorded.

    python -m bench.peers.quick [--write]

Short rounds of three rows on Plimsoll, JetStream and the thin Python floor, then the one-process
figures. What is judged is the brokers' processor time as a multiple of the floor's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers import one_process, recorded
from bench.peers.comparison import Comparison, available
from bench.peers.results import Results
from bench.peers.rows import ROWS, Scale
from bench.peers.systems.floor import PythonFloor
from bench.peers.systems.jetstream import JetStream
from bench.peers.systems.plimsoll import Plimsoll
from bench.peers.table import lines

JUDGED = {
    "ack at 1,000/s, 12 partitions": "brokers_us_a_record",
    "RF 1, ack at 1,000/s": "brokers_us_a_record",
    "1 KB records, 128 KB batches": "brokers_ms_a_mb",
}
SCALE = Scale(seconds=3, megabytes=60)
ROUNDS = 3


def ratios(results: Results) -> dict[str, float]:
    """Return the brokers' processor time of each row as a multiple of the floor's."""
    found = {}
    for row, figure in JUDGED.items():
        ours = results.spread(row, Plimsoll.name, figure)
        floor = results.spread(row, PythonFloor.name, figure)
        if ours is None or floor is None:
            raise RuntimeError(f"{row}: not measured")
        found[f"{row}, times the floor"] = ours.median / floor.median
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="record the figures")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if row.name in JUDGED]
    with TemporaryDirectory() as directory:
        results = Results(Path(directory) / "results.json")
        comparison = Comparison(rows, SCALE, results)
        systems = available([Plimsoll, JetStream, PythonFloor])
        for _ in range(ROUNDS):
            comparison.round(systems)
        print("\n".join(lines(results, tuple(one.name for one in systems))))
        figures, others_cores = one_process.figures()
        found = {**ratios(results), **figures}
    for name, value in found.items():
        print(f"{name}: {value:.4g}")
    others_cores = max(others_cores, results.others_cores(JUDGED))
    if others_cores > recorded.OTHERS_CORES_MAX:
        print(
            f"Not judged: other programs used {others_cores:.2f} of a processor. Stop them, and "
            "measure again.",
            file=sys.stderr,
        )
        return 1
    if arguments.write:
        recorded.write(found)
    worse = recorded.worse(found, others_cores)
    for sentence in worse:
        print(sentence, file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
