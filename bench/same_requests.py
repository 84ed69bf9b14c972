"""Two checkouts of Plimsoll, in turn: the processor time of one and the same request.

The batches of a real producer depend on how fast the broker is.  Here both are fixed: so many
requests, of so many bytes.  Three brokers of each checkout on loopback; each case goes to both
clusters in turn, the order changes from round to round, and what is compared is the processor time
of all brokers, in microseconds for each request.

    git worktree add /tmp/before COMMIT
    python -m bench.same_requests --before /tmp/before --rounds 7
"""

from __future__ import annotations

import argparse
import itertools
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.checkouts import HERE, code_of
from bench.intervals import ratios, spread
from bench.same_produces import frame_of
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.local_cluster import LocalCluster

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

PRODUCE_VERSION, FETCH_VERSION = 9, 12
IN_FLIGHT = 5
_CLIENT = "same"


@dataclass(frozen=True, slots=True)
class Case:
    """`size`: of a batch that is written, or bytes that a fetch may bring."""

    api: str
    factor: int
    size: int
    requests: int

    @property
    def name(self) -> str:
        return f"{self.api} RF {self.factor} {self.size // 1000} kB"

    @property
    def topic(self) -> str:
        return f"{'w' if self.api == 'produce' else 'r'}{self.factor}-{self.size}"


CASES = [
    Case("produce", 1, 1_000, 4_000),
    Case("produce", 1, 128_000, 1_000),
    Case("produce", 3, 1_000, 1_500),
    Case("produce", 3, 128_000, 400),
    Case("fetch", 1, 1_000, 4_000),
    Case("fetch", 1, 128_000, 2_000),
    Case("fetch", 3, 1_000, 4_000),
    Case("fetch", 3, 128_000, 2_000),
]


def processor_ns(pids: list[int]) -> int:
    """Return the time of all their threads; clock ticks of 10 ms would be too coarse."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


class Side:
    """The cluster of one checkout."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.pids = [cluster.ready["pids"][str(broker)] for broker in range(3)]
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._leaders: dict[str, tuple[str, int]] = {}

    def prepare(self, case: Case) -> None:
        topic = NewTopic(case.topic, 1, case.factor, config={"retention.bytes": str(256 * 2**20)})
        self._admin.create_topics([topic])[case.topic].result(30)
        found = self._admin.list_topics(case.topic, timeout=30)
        leader = found.brokers[found.topics[case.topic].partitions[0].leader]
        self._leaders[case.topic] = (leader.host, leader.port)
        if case.api == "fetch":
            self._send(case, frame_of(case.topic, case.size, acks=-1), 1)

    def run(self, case: Case) -> float:
        """Microseconds of the brokers' processor time for each request."""
        produces = case.api == "produce"
        frame = frame_of(case.topic, case.size, acks=-1) if produces else _fetch(case)
        before = processor_ns(self.pids)
        self._send(case, frame, case.requests)
        return (processor_ns(self.pids) - before) / 1e3 / case.requests

    def _send(self, case: Case, frame: bytes, requests: int) -> None:
        """Several at a time; the reply of each must be of the right size, and name no error."""
        with socket.create_connection(self._leaders[case.topic], timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection.makefile("rb")
            for number in range(requests + IN_FLIGHT):
                if number < requests:
                    connection.sendall(frame)
                if number >= IN_FLIGHT and number - IN_FLIGHT < requests:
                    (length,) = struct.unpack(">i", stream.read(4))
                    _check(case, frame, stream.read(length))


def _check(case: Case, frame: bytes, reply: bytes) -> None:
    if struct.unpack_from(">h", frame, 4)[0] == ApiKey.PRODUCE:
        # Behind the correlation id: tags, one topic, its name, one partition, which is 0.
        (code,) = struct.unpack_from(">h", reply, 4 + 1 + 1 + 1 + len(case.topic) + 1 + 4)
        assert code == 0, f"refused with {code}"
    else:
        assert len(reply) > case.size, f"{len(reply)} bytes are no batch"


def _fetch(case: Case) -> bytes:
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": case.size,
    }  # fmt: skip
    values = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": case.size,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": case.topic, "partitions": [partition]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    body = encode_request(ApiKey.FETCH, FETCH_VERSION, values)
    return request_frame(ApiKey.FETCH, FETCH_VERSION, 1, _CLIENT, body)


def measured(before: Path, rounds: int, cases: list[Case]) -> Iterator[tuple[Case, str, float]]:
    """The first round warms up, and is not told."""
    with TemporaryDirectory() as directory, ExitStack() as stack:
        sides = {}
        for name, checkout in (("before", before), ("after", HERE)):
            cluster = LocalCluster(Path(directory) / name, brokers=3)
            with code_of(checkout):
                cluster.start()
            stack.callback(cluster.stop)
            sides[name] = Side(cluster)
        for case, side in itertools.product(cases, sides.values()):
            side.prepare(case)
        for number, case in itertools.product(range(rounds + 1), cases):
            for name in sorted(sides, reverse=number % 2 == 0):
                figure = sides[name].run(case)
                if number:
                    yield case, name, figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=1, help="of clusters, made anew")
    parser.add_argument("--only", default="", help="cases whose names contain it")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case.name]
    found: dict[Case, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.pairs):
        for case, name, figure in measured(arguments.before, arguments.rounds, cases):
            found[case][name].append(figure)
    for case, figures in found.items():
        one, other = figures["before"], figures["after"]
        print(
            f"{case.name}: µs a request before {spread(one)}, after {spread(other)},"
            f" {ratios(one, other)}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
