"""A node without processors: `make storm FOR=300`, on the local node.

A cluster of three brokers, installed by the chart, has a topic of 2,000 partitions and one for each
of three writers (acks=all, three clients).  Then 100 processes, each in a session of its own, use
all the processor time that they get, for so many seconds; they end by themselves, and with this
program.  Judged: no container of the brokers or the operator was restarted, the Lease changed hands
once at most, each writer stood still once at most, each partition takes a record within 60 s of
processors being there, and every acknowledged record is read back at its offset.  The time for
which nothing was done, and that of the recovery, are told in seconds of this machine and in those
that an idle one would have needed (machine_share.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from dev.kubectl import RESTRICTED, Cluster, is_true, wait_for
from tests.e2e import release
from tests.e2e.drill import SYSTEM
from tests.e2e.secured import PLAIN, Secured
from tests.integration.chaos import is_there
from tests.integration.chaos_clients.frame import PARTITIONS, Place, Writer
from tests.integration.chaos_clients.kinds import KINDS
from tests.integration.chaos_clients.librdkafka import as_record
from tests.integration.local_cluster import a_producer, committed_messages
from tests.integration.machine_share import MachineShare

CLIENTS = ("librdkafka", "java", "aiokafka")
MANY = "many"
OUTSIDE = "node"
READY_S = 600
BEGINS_S = 180
BEFORE_S = 15.0
"""So long do writers write before the storm."""
DELIVERY_MS = 1_800_000
"""Longer than a storm and what follows: a record that is given up is a fault."""
SERVES_S_MAX = 60.0
STOOD_IDLE_S_MIN = 3.0
"""A writer that got nothing done for so long, of an idle machine, stood still: shorter stalls are
the time that the same work takes with so little of a processor."""
PREFERRED = "-11"
"""Of this program's session, in which the writers are: what is measured are brokers."""
BUSY = """\
import os, sys, time
parent, end_s = os.getppid(), float(sys.argv[1])
while time.monotonic() < end_s and os.getppid() == parent:
    for _ in range(200_000):
        pass
"""


class Seen(NamedTuple):
    """Restarts of each container of ours, by pod, and how often the Lease changed hands."""

    restarts: dict[str, int]
    transitions: int


def look(made: Secured) -> Seen:
    pods = [
        pod
        for namespace in (made.namespace, SYSTEM)
        for pod in made.cluster.items("pods", namespace)
    ]
    restarts = {
        f"{pod['metadata']['name']} ({pod['metadata']['uid'][:8]})": sum(
            one["restartCount"] for one in pod["status"].get("containerStatuses") or ()
        )
        for pod in pods
    }
    (lease,) = made.cluster.items("lease", made.namespace)
    return Seen(restarts, int(lease["spec"].get("leaseTransitions") or 0))


@contextlib.contextmanager
def a_cluster(kubernetes: Cluster, partitions: int, *, keep: bool) -> Iterator[Secured]:
    namespace = f"storm-{uuid.uuid4().hex[:6]}"
    kubernetes.make_namespace(namespace, RESTRICTED)
    made = Secured(kubernetes, namespace)
    try:
        made.listen(PLAIN, {"name": OUTSIDE, "port": 9096, "type": "NodePort"})
        for name, count in ((MANY, partitions), *((topic_of(one), PARTITIONS) for one in CLIENTS)):
            replicas = {"replicationFactor": 3, "minInSyncReplicas": 2}
            spec = {"clusterRef": {"name": "main"}, "partitions": count, **replicas}
            made.apply("Topic", name, spec)
            wait_ready(made, "topic", name)
        wait_ready(made, "logcluster", "main")
        made.wait_addresses(OUTSIDE)
        yield made
    finally:
        if not keep:
            kubernetes.delete_namespace(namespace)


def wait_ready(made: Secured, kind: str, name: str) -> None:
    def ready() -> bool | None:
        return is_true(made.object(kind, name), "Ready") or None

    wait_for(f"{kind}/{name} to be Ready", ready, READY_S)


def topic_of(client: str) -> str:
    return f"written-{client}"


@contextlib.contextmanager
def busy(processes: int, seconds: float) -> Iterator[float]:
    """So many of them; yields when they end."""
    ends_s = time.monotonic() + seconds
    command = [sys.executable, "-S", "-c", BUSY, str(ends_s)]
    # Sessions share the processors, whatever runs in them (autogroup, sched(7)).
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield ends_s
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()


def rage(processes: int, seconds: float) -> float:
    """The largest load average; returns when every busy process has ended."""
    load = 0.0
    with busy(processes, seconds) as ends_s:
        while (left_s := ends_s - time.monotonic()) > 0:
            load = max(load, os.getloadavg()[0])
            time.sleep(min(left_s, 5.0))
    return load


def served_after(servers: str, partitions: int, began_s: float) -> float:
    """Seconds from `began_s` until a new client's record in each partition was acknowledged."""
    missing = {*range(partitions)}

    def told(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            missing.discard(message.partition() or 0)

    producer = a_producer(servers, **{"message.timeout.ms": 300_000, "log_level": 0})
    for partition in range(partitions):
        producer.produce(MANY, b"after", partition=partition, on_delivery=told)
        producer.poll(0)
    producer.flush(300)
    assert not missing, (
        f"{len(missing)} partitions of {MANY} take no record, such as {min(missing)}"
    )
    return time.monotonic() - began_s


def lost(servers: str, writer: Writer) -> int:
    """Acknowledged records that are not at their offset."""
    there: dict[int, dict[int, int | None]] = {index: {} for index in range(PARTITIONS)}
    for message in committed_messages(servers, writer.topic, PARTITIONS):
        record = as_record(message)
        number = int(record.value.partition(b":")[0])
        there[message.partition() or 0][number] = record.offset
    return sum(
        not is_there(record, there[index])
        for index, rows in writer.acked.items()
        for record in rows
    )


def stood(writer: Writer, machine: MachineShare, began_s: float) -> list[str]:
    """What was wrong; prints the longest stall."""
    stalls = [one for one in writer.stalls_until(time.monotonic()) if one.ended_s > began_s]
    long = [one for one in stalls if machine.idle_s(*one) >= STOOD_IDLE_S_MIN]
    longest = max(stalls, key=lambda one: one.ended_s - one.began_s, default=None)
    if longest is not None:
        print(
            f"{writer.name}: stood still for {longest.ended_s - longest.began_s:.1f} s at most "
            f"({machine.idle_s(*longest):.1f} s of an idle machine), from "
            f"{longest.began_s - began_s:.0f} s of the storm on; {len(stalls)} stalls of a second "
            f"or more, {len(long)} of {STOOD_IDLE_S_MIN:g} s of an idle machine"
        )
    return [f"{writer.name} stood still {len(long)} times"] if len(long) > 1 else []


def changed(before: Seen, after: Seen) -> list[str]:
    transitions = after.transitions - before.transitions
    restarts = sum((Counter(after.restarts) - Counter(before.restarts)).values())
    print(f"restarts: {restarts}; the Lease changed hands {transitions} times")
    found = [f"a pod was replaced: {one}" for one in {*before.restarts} ^ {*after.restarts}]
    found += [f"{restarts} restarts: {after.restarts}"] if restarts else []
    found += [f"the Lease changed hands {transitions} times"] if transitions > 1 else []
    return found


def storm(made: Secured, given: argparse.Namespace, directory: Path) -> list[str]:
    servers = made.row(OUTSIDE)["bootstrapServers"]
    place = Place(
        bootstrap=servers, work=directory, seed=1, cooperative=False, delivery_ms=DELIVERY_MS
    )
    writers = [KINDS[one]().prepare(place).writer(place, topic_of(one), 0) for one in CLIENTS]
    with MachineShare.measured() as machine:
        for writer in writers:
            writer.start()
        for writer in writers:
            assert writer.begun.wait(BEGINS_S), f"the {writer.name} does not write"
        time.sleep(BEFORE_S)
        before, began_s = look(made), time.monotonic()
        load = rage(given.load, given.seconds)
        ended_s = time.monotonic()
        serves_s = served_after(servers, given.partitions, ended_s)
        serves_idle_s = machine.idle_s(ended_s, ended_s + serves_s)
        wrong = [said for writer in writers for said in stood(writer, machine, began_s)]
        slower = machine.slowdown(began_s, ended_s)
    print(f"load average {load:.0f} at most, this program {slower:.1f} times slower than idle")
    print(
        f"every partition of {given.partitions} took a record {serves_s:.1f} s after the storm "
        f"({serves_idle_s:.1f} s of an idle machine)"
    )
    if serves_idle_s > SERVES_S_MAX:
        wrong.append(f"served again after {serves_idle_s:.1f} s")
    for writer in writers:
        writer.end()
        wrong += [f"{writer.name}: {each}" for each in sorted({*writer.failed})]
        wrong += [f"{writer.name}: {writer.left} were never answered"] if writer.left else []
        missing = lost(servers, writer)
        acked = sum(map(len, writer.acked.values()))
        print(f"{writer.name}: {acked} records acknowledged, {missing} of them lost")
        wrong += [f"{writer.name}: {missing} records are lost"] if missing else []
    return wrong + changed(before, look(made))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.storm")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--load", type=int, default=100, help="busy processes")
    parser.add_argument("--partitions", type=int, default=2000, help="of the large topic")
    parser.add_argument("--keep", action="store_true", help="the namespace stays")
    given = parser.parse_args()
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(PREFERRED)
    kubernetes = release.reached()
    release.install(kubernetes)
    with (
        a_cluster(kubernetes, given.partitions, keep=given.keep) as made,
        tempfile.TemporaryDirectory() as directory,
    ):
        print(f"{made.namespace}: {given.load} busy processes for {given.seconds:g} s", flush=True)
        wrong = storm(made, given, Path(directory))
    for each in wrong:
        print(each)
    print("starved, not hung" if not wrong else "NOT SO")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
