"""Who administers a cluster while it is hurt: `make chaos OPERATIONS=1`.

Through the API server, as kubectl does, and through Kafka's admin API: moves replicas (several
Reassignments and Rebalances at once, some taken back midway), adds and removes brokers, adds
partitions, changes configs, makes and deletes topics, deletes records and pods.  Producers and
consumers of `plain` and `compacted` must notice nothing but stalls.  Afterwards each operation has
ended, or says what it waits for, one more is carried out as it says, the LogCluster is Ready,
brokers hold what is placed on them and nothing else, and no process logged an error.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import confluent_kafka
from confluent_kafka.admin import NewTopic
from tests.integration.chaos_clients.frame import COMPACTED, PLAIN
from tests.integration.listening import CLUSTER, CORE, OURS, asked
from tests.integration.local_cluster import LocalCluster, wait_for

PODS = f"{CORE}/pods"
OTHER = "other"
"""The topic whose configs change; nobody looks at what is in it."""
MOVED = (PLAIN, COMPACTED)
BETWEEN_S = (1.0, 6.0)
CLIENT_S = 10.0
BROKERS = (3, 4, 5)
PARTITIONS_MAX = 12
STOPS_S_MAX = 60.0
ENDED_S_MAX = 400.0
"""Moves at 100 KiB a second among them."""
READY_S_MAX = 60.0
GONE_S_MAX = 120.0
"""A replica's files after it was taken away (file.delete.delay.ms is a minute)."""
LAST = [1, 2, 0]
"""Where the last Reassignment puts every partition."""
REFUSED = (AssertionError, OSError, confluent_kafka.KafkaException)
"""Also while everything is down."""
ENDED = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})
WAITING = frozenset({"Pending", "AwaitingApproval"})
"""For brokers that there are not, or for a person: said in the object."""


@contextlib.contextmanager
def administrated(cluster: LocalCluster, seed: int) -> Iterator[list[str]]:
    """An administrator works meanwhile; afterwards the list says what was wrong."""
    wrong: list[str] = []
    administrator = Administrator(cluster, seed)
    administrator.start()
    try:
        yield wrong
    finally:
        administrator.end()
    print(f"beside it: {', '.join(f'{what} {n}' for what, n in administrator.did.most_common())}")
    wrong += _wrong_with_operations(cluster)


def apply(cluster: LocalCluster, kind: str, name: str, spec: dict[str, Any]) -> str:
    """The path of the object."""
    path = f"{OURS}/{kind.lower()}s"
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }
    asked(cluster, "POST", path, body)
    return f"{path}/{name}"


class Administrator:
    """A thread of operations, from `start` to `end`."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self.did = Counter[str]()
        # The paths of operations that may be taken back.
        self.applied: list[str] = []
        self._cluster = cluster
        self._rng = random.Random(f"administrator {seed}")
        self._brokers = BROKERS[0]
        self._partitions = BROKERS[0]
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, "administrator")
        # Set while it works: what it raised is raised again by `end`.
        self._working: Future[None] | None = None
        self._ways: list[Callable[[], None]] = [
            *([self.reassign] * 5),
            *([self.take_back] * 3),
            *([self.rebalance] * 2),
            *([self.scale] * 2),
            *([self.configure] * 2),
            self.add_partitions,
            self.make_or_delete_topic,
            self.make_or_delete_clients_topic,
            self.delete_records,
            self.delete_pod,
        ]

    def start(self) -> None:
        apply(self._cluster, "Topic", OTHER, {"partitions": self._partitions})
        self._working = self._thread.submit(self._work)

    def end(self) -> None:
        """Raises what went wrong other than that a request was refused, or that nobody answered."""
        assert self._working is not None, "it was started"
        self._stop.set()
        self._working.result(STOPS_S_MAX)
        self._thread.shutdown()

    def _work(self) -> None:
        while not self._stop.wait(self._rng.uniform(*BETWEEN_S)):
            way = self._rng.choice(self._ways)
            name = way.__name__.replace("_", " ")
            print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
            try:
                way()
            except REFUSED:
                continue
            self.did[name] += 1

    # --- what is done ---------------------------------------------------------------------------

    def reassign(self) -> None:
        topic = self._rng.choice((*MOVED, OTHER))
        numbers = range(self._brokers)
        if self._rng.random() < 0.5:
            move = {"topic": topic, "awayFrom": [self._rng.choice(numbers)]}
        else:
            move = {"topic": topic, "replicas": self._rng.sample(numbers, BROKERS[0])}
        throttle = {"bytesPerSecond": self._rng.choice(("100Ki", "400Ki", "20Mi"))}
        self._operate("Reassignment", {"moves": [move], "throttle": throttle})

    def rebalance(self) -> None:
        mode = self._rng.choice(("Full", "PreferredLeaders", "AddBrokers"))
        brokers = {"brokers": [self._rng.randrange(self._brokers)]} if mode == "AddBrokers" else {}
        self._operate("Rebalance", {"mode": mode, "approval": "Automatic", **brokers})

    def take_back(self) -> None:
        if not self.applied:
            return
        path = self.applied.pop(self._rng.randrange(len(self.applied)))
        if self._rng.random() < 0.5:
            asked(self._cluster, "DELETE", path)
        else:
            asked(self._cluster, "PATCH", path, {"spec": {"cancelled": True}})

    def scale(self) -> None:
        wanted = self._rng.choice(BROKERS)
        asked(self._cluster, "PATCH", CLUSTER, {"spec": {"brokers": {"count": wanted}}})
        self._brokers = wanted

    def configure(self) -> None:
        config = {
            "segment.bytes": self._rng.choice(("65536", "262144")),
            "retention.bytes": self._rng.choice(("100000", "1000000")),
            "cleanup.policy": self._rng.choice(("delete", "compact", "compact,delete")),
        }
        spec = {"config": config, "minInSyncReplicas": self._rng.choice((1, 2))}
        asked(self._cluster, "PATCH", f"{OURS}/topics/{OTHER}", {"spec": spec})

    def add_partitions(self) -> None:
        wanted = min(self._partitions + 1, PARTITIONS_MAX)
        asked(self._cluster, "PATCH", f"{OURS}/topics/{OTHER}", {"spec": {"partitions": wanted}})
        self._partitions = wanted

    def make_or_delete_topic(self) -> None:
        name = self._rng.choice(("s1", "s2"))
        if self._rng.random() < 0.5:
            apply(self._cluster, "Topic", name, {"partitions": 6})
        else:
            asked(self._cluster, "DELETE", f"{OURS}/topics/{name}")

    def make_or_delete_clients_topic(self) -> None:
        name, admin = f"c{self._rng.randrange(4)}", self._cluster.admin()
        if self._rng.random() < 0.5:
            (future,) = admin.create_topics([NewTopic(name, 2, 3)]).values()
        else:
            (future,) = admin.delete_topics([name]).values()
        future.result(CLIENT_S)

    def delete_records(self) -> None:
        place = confluent_kafka.TopicPartition(OTHER, self._rng.randrange(BROKERS[0]), -1)
        admin = self._cluster.admin()  # whose requests end with it
        (future,) = admin.delete_records([place]).values()
        future.result(CLIENT_S)

    def delete_pod(self) -> None:
        pods = [one["metadata"]["name"] for one in asked(self._cluster, "GET", PODS)["items"]]
        asked(self._cluster, "DELETE", f"{PODS}/{self._rng.choice(pods)}")

    def _operate(self, kind: str, spec: dict[str, Any]) -> None:
        self.applied.append(apply(self._cluster, kind, f"{kind.lower()}-{self.did.total()}", spec))


# --- what is looked for afterwards ----------------------------------------------------------------


def _wrong_with_operations(cluster: LocalCluster) -> list[str]:
    """Of those that have not ended and do not say what they wait for, of what brokers hold, and of
    what was logged."""
    wait_for("three brokers are asked for", lambda: _scaled_down(cluster))
    wrong = _still_wrong(lambda: _going_on(cluster), ENDED_S_MAX)
    moves = [{"topic": topic, "replicas": LAST} for topic in MOVED]
    last = apply(cluster, "Reassignment", "the-last", {"moves": moves})
    wrong += _still_wrong(lambda: _not_moved(cluster, last), ENDED_S_MAX)
    wrong += _still_wrong(lambda: _not_ready(cluster), READY_S_MAX)
    wrong += _still_wrong(lambda: _misplaced(cluster), GONE_S_MAX)
    return [*wrong, *_logged_errors(cluster)]


def _still_wrong(what: Callable[[], list[str]], timeout_s: float) -> list[str]:
    """When the time is over; nothing as soon as nothing is."""
    wrong = ["nobody answers"]

    def right() -> bool:
        with contextlib.suppress(*REFUSED):
            wrong[:] = what()
        return not wrong

    with contextlib.suppress(AssertionError):  # it is told
        wait_for("nothing is wrong", right, timeout_s, 1.0)
    return wrong


def _scaled_down(cluster: LocalCluster) -> bool:
    with contextlib.suppress(*REFUSED):
        asked(cluster, "PATCH", CLUSTER, {"spec": {"brokers": {"count": BROKERS[0]}}})
        return True
    return False


def _not_moved(cluster: LocalCluster, path: str) -> list[str]:
    status = asked(cluster, "GET", path).get("status", {})
    if status.get("phase") != "Completed":
        return [f"the last Reassignment is not Completed: {status}"]
    rows = {(topic, n): p.replicas for topic in MOVED for n, p in cluster.topic(topic).items()}
    misplaced = [f"{topic}-{n} is on {row}" for (topic, n), row in rows.items() if row != LAST]
    return misplaced if rows else ["no broker shows the topics"]


def _not_ready(cluster: LocalCluster) -> list[str]:
    shown = asked(cluster, "GET", CLUSTER)["status"]["conditions"]
    (ready,) = (one for one in shown if one["type"] == "Ready")
    return [] if ready["status"] == "True" else [f"the LogCluster is not Ready: {ready}"]


def _going_on(cluster: LocalCluster) -> list[str]:
    found = []
    for kinds in ("reassignments", "rebalances"):
        for one in asked(cluster, "GET", f"{OURS}/{kinds}")["items"]:
            status = one.get("status", {})
            if status.get("phase") not in ENDED | WAITING:
                said = [each["message"] for each in status.get("conditions", ())]
                found.append(f"{one['metadata']['name']} is {status.get('phase')}: {said}")
    return found


def _misplaced(cluster: LocalCluster) -> list[str]:
    placed: dict[int, set[str]] = {}
    topics = cluster.admin().list_topics(timeout=CLIENT_S).topics
    for name, topic in topics.items():
        for index, partition in topic.partitions.items():
            for broker in partition.replicas:
                placed.setdefault(broker, set()).add(f"{name}-{index}")
    return [
        f"broker {broker} holds {sorted(held - expected)}, and lacks {sorted(expected - held)}"
        for broker, held in _held(cluster)
        if held != (expected := placed.get(broker, set()))
    ]


def _held(cluster: LocalCluster) -> Iterator[tuple[int, set[str]]]:
    """The partitions that each running broker has a folder of, without those it is deleting."""
    for name in cluster.pids:
        if name != "controller":
            folders = (cluster.directory / f"broker-{name}").glob("*-*")
            names = {each.name for each in folders if each.is_dir()}
            yield int(name), {each for each in names if not each.endswith("-delete")}


def _logged_errors(cluster: LocalCluster) -> list[str]:
    found = []
    for path in sorted((cluster.directory / "logs").glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        errors = [line for line in lines if " ERROR " in line or line.startswith("Traceback")]
        found += [f"{path.name}: {len(errors)} errors, such as {errors[0]}"] if errors else []
    return found
