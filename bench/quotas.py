"""What quota accounting costs: the same broker with no quota, and with quotas that nobody exceeds.

One broker on loopback, one topic.  kcat writes with acks=1 and reads back, in turns without quotas
and with all four of every user, a thousand rows of other users beside them: MB/s and the broker's
processor time for each megabyte.  Small requests are the worst case, so the batches are small.  The
quotas are changed while the broker runs.  Prints the medians of one run and their ratio; what is
aimed at is that the processor time with quotas is at most 1.02 of that without.

    python -m bench.quotas --megabytes 60 --rounds 7 --batch-bytes 16384
"""

import argparse
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.intervals import ratios, spread
from bench.lines import make_lines
from bench.peers.processor_time import processor_s
from tests.integration.local_cluster import LocalCluster

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

TOPIC = "bench"
OTHERS = 900
"""Rows of other users: a request changes so many at a time."""
UNREACHED = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e6,
    "controller_mutation_rate": 1e6,
}


def change(running: LocalCluster, *, limited: bool) -> None:
    """Every user's quotas, and rows of others."""
    ops = [
        {"key": key, "value": value if limited else 0.0, "remove": not limited}
        for key, value in UNREACHED.items()
    ]
    names = [None, *(f"user-{number}" for number in range(OTHERS))]
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": name}], "ops": ops} for name in names
    ]
    told = _asked(running, {"entries": entries, "validate_only": False})
    refused = [one.error_message for one in told.entries if one.error_code]
    assert not refused, refused[0]


def _asked(running: LocalCluster, values: dict[str, Any]) -> Any:
    key = ApiKey.ALTER_CLIENT_QUOTAS
    with socket.create_connection(running.address(0), timeout=60) as connection:
        connection.sendall(request_frame(key, 1, 1, "bench", encode_request(key, 1, values)))
        stream = connection.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        return decode_response(key, 1, stream.read(length)[5:])


def timed(running: LocalCluster, megabytes: int, *words: str) -> tuple[float, float]:
    """MB/s, and the broker's milliseconds for each MB."""
    broker = [running.ready["pids"]["0"]]
    before, began = processor_s(broker), time.perf_counter()
    subprocess.run(
        ["kcat", "-b", running.bootstrap, "-t", TOPIC, *words], check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    return megabytes / seconds, (processor_s(broker) - before) * 1000 / megabytes


def measure(running: LocalCluster, arguments: argparse.Namespace, lines: Path) -> None:
    records = arguments.megabytes * 1_000_000 // arguments.record_bytes
    batch = f"batch.size={arguments.batch_bytes}"
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for number in range(arguments.rounds + 1):
        for limited in (False, True) if number % 2 else (True, False):
            change(running, limited=limited)
            figures = {
                "write": timed(
                    running, arguments.megabytes, "-P", "-l", str(lines), "-X", "acks=1",
                    "-X", batch, "-X", "queue.buffering.max.kbytes=131072",
                ),
                "read": timed(
                    running, arguments.megabytes, "-C", "-o", "beginning", "-c", str(records),
                    "-q", "-X", f"fetch.message.max.bytes={arguments.batch_bytes}",
                ),
            }  # fmt: skip
            for what, figure in figures.items():
                if number:  # the first is the warm-up
                    found.setdefault((what, limited), []).append(figure)
    for what in ("write", "read"):
        for at, unit in enumerate(("MB/s", "ms of the broker's processor for each MB")):
            without, limited_ones = (
                [one[at] for one in found[what, limited]] for limited in (False, True)
            )
            print(
                f"{what}, {unit}: without {spread(without)}, with quotas {spread(limited_ones)}, "
                + ratios(without, limited_ones),
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--batch-bytes", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        lines = Path(temporary) / "lines"
        make_lines(lines, arguments.megabytes, arguments.record_bytes)
        with LocalCluster(Path(temporary) / "cluster", brokers=1) as running:
            running.create_topic(TOPIC, 6)
            measure(running, arguments, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
