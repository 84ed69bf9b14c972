"""A cluster that is grown, shrunk and restarted: what it is asked to become, and who looks on."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dev.kubectl import Cluster, CommandFailed, wait_for

SYSTEM = "plimsoll-system"
PER_SECOND = 100
"""A write to each partition of `orders` every 120 ms: what is asked is whether any is lost, and
each costs brokers some milliseconds of a processor."""
RECORD_BYTES = 960
"""What is written has to be moved later, at a MiB a second, during which brokers are killed."""
AND_NEXT_S = 110
"""So much longer than its step needs does a Verification write: for two or three steps in all."""
LEADS_S = 90
"""More than enough for an operator to lead, when none does."""
FAST = {"bytesPerSecond": "50Mi"}
TOPICS = {"orders": (12, 3, 2), "pairs": (6, 2, 1)}
"""Partitions, replication factor, min ISR."""


class Written(NamedTuple):
    """A Verification, and how many records it writes."""

    name: str
    records: int


class Drill:
    """A cluster named `main` in a namespace of its own, and what it is asked to become."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        # In the order in which they began.
        self.verifications: list[Written] = []
        self.spec: dict[str, Any] = {
            "brokers": {"count": 3, "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}}},
            "storage": {"size": "1Gi"},
            "movement": {"bytesPerSecond": "1Mi", "autoRebalance": "Automatic"},
        }

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"clusterRef": {"name": "main"}, **spec} if kind != "LogCluster" else spec,
        }
        self.cluster.apply(body, self.namespace)

    def change(self, **brokers: Any) -> None:
        """Edit `spec.brokers`, as a user would in the LogCluster's file."""
        self.spec["brokers"].update(brokers)
        self.apply("LogCluster", "main", self.spec)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.get(kind, name, self.namespace) or {}

    def view(self, topic: str) -> list[dict[str, Any]] | None:
        """A topic's partitions as the active operator has them committed; None: there is none."""
        path = f"/v1/clusters/{self.namespace}/main/topics/{topic}"
        try:
            view = self.cluster.operator_view(path, SYSTEM)
        except (CommandFailed, ValueError):
            return None
        found: list[dict[str, Any]] | None = None if view is None else view["partitions"]
        return found

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """The same, waiting for an operator that leads: one may have been killed just now."""
        return wait_for(f"the partitions of {topic}", lambda: self.view(topic), LEADS_S)

    def settled(self) -> bool | None:
        """Everything in sync, led, and nothing on the move."""
        for topic, (partitions, _, _) in TOPICS.items():
            found = self.view(topic)
            if found is None or len(found) != partitions:
                return None
            if any(set(p["isr"]) != set(p["replicas"]) or p["leader"] is None for p in found):
                return None
        return True

    def waiting_for(self, broker: int) -> list[str] | None:
        """Partitions at or below their min ISR whose ISR a replica on this broker has yet to join;
        None: they cannot be read now."""
        waiting = []
        for topic, (_, _, min_isr) in TOPICS.items():
            found = self.view(topic)
            if found is None:
                return None
            waiting += [
                f"{topic}-{p['partition']}: ISR {p['isr']} of {p['replicas']}"
                for p in found
                if broker in p["replicas"] and broker not in p["isr"] and len(p["isr"]) <= min_isr
            ]
        return waiting

    def hosts(self) -> Counter[int]:
        """How many replicas each broker has, those of the verifications' groups included."""
        counts: Counter[int] = Counter()
        for topic in (*TOPICS, "__consumer_offsets"):
            for partition in self.partitions(topic):
                counts.update(partition["replicas"])
        return counts

    def members(self) -> list[int]:
        status = self.get("logcluster", "main").get("status") or {}
        return sorted((status.get("brokers") or {}).get("ids", ()))

    def running_move(self) -> dict[str, Any] | None:
        """A Rebalance that has begun to move something."""
        for one in self.cluster.items("rebalances", self.namespace):
            if (one.get("status") or {}).get("phase") == "Running":
                return one
        return None

    def pod(self, broker: int) -> dict[str, Any] | None:
        return self.cluster.get("pod", f"main-broker-{broker}-0", self.namespace)

    def process(self, broker: int) -> int:
        """The broker's process, on the local node."""
        pod = self.pod(broker)
        assert pod is not None, broker
        return process_of(pod, "plimsoll_broker")


class Watch:
    """Partitions seen below min ISR, from beginning to end of a step, with what the cluster said of
    the brokers that were not in sync."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.looks = 0
        self.below: list[str] = []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _look(self) -> None:
        while not self._over.is_set():
            for topic, (_, _, min_isr) in TOPICS.items():
                found = self._drill.view(topic) or ()
                self.looks += bool(found)
                self.below += [
                    f"{topic}-{p['partition']}: ISR {p['isr']} of {p['replicas']},"
                    f" {self._reasons(set(p['replicas']) - set(p['isr']))}"
                    for p in found
                    if len(p["isr"]) < min_isr
                ]
            self._over.wait(0.2)

    def _reasons(self, brokers: set[int]) -> str:
        """Return why these brokers are not ready, by their LogBroker objects."""
        told = []
        for broker in sorted(brokers):
            conditions = (self._drill.get("logbroker", f"main-{broker}").get("status") or {}).get(
                "conditions", ()
            )
            told += [f"broker {broker} {c['reason']}" for c in conditions if c["type"] == "Ready"]
        return ", ".join(told) or "no LogBroker is there"


@contextmanager
def verified(drill: Drill, least_s: int = 25, then_s: int = AND_NEXT_S) -> Iterator[Watch]:
    """Within: Spark writes to `orders`, for so long at least.  A Verification that writes longer
    (`then_s`) serves the next steps too: each costs half a minute of a processor, and its step
    waits until it writes.  See `assert_all_passed`."""
    if writes_left(drill) < PER_SECOND * least_s:
        write(drill, least_s + then_s)
    with Watch(drill) as watch:
        yield watch
    assert watch.looks, "the ISRs were never read"


def writes_left(drill: Drill) -> int:
    """Records that the newest Verification has still to write."""
    if not drill.verifications:
        return 0
    return drill.verifications[-1].records - acked(drill, drill.verifications[-1].name)


def write(drill: Drill, seconds: int) -> None:
    """Begin another Verification, and wait until it writes."""
    name, records = f"written-{len(drill.verifications)}", PER_SECOND * seconds
    writes = {
        "records": records,
        "recordBytes": RECORD_BYTES,
        "recordsPerSecond": PER_SECOND,
        "keys": 500,
        "acks": "All",
        "idempotent": True,
    }
    drill.apply("Verification", name, {"topic": "orders", "allowExisting": True, "produce": writes})
    drill.verifications.append(Written(name, records))
    wait_for("Spark to write", lambda: acked(drill, name) > PER_SECOND // 3 or None, 180)


def acked(drill: Drill, name: str) -> int:
    status = drill.get("verification", name).get("status") or {}
    return int(status.get("counts", {}).get("acked", 0))


def assert_all_passed(drill: Drill) -> None:
    """What Spark wrote meanwhile was all acknowledged, and all read back, once and in order."""
    assert drill.verifications
    for name, records in drill.verifications:

        def over(name: str = name) -> dict[str, Any] | None:
            found = drill.get("verification", name).get("status") or {}
            return found if found.get("verdict") else None

        status = wait_for(f"the verdict of {name}", over, 300, every_s=2)
        assert status["verdict"] == "Passed", status
        counts = status["counts"]
        assert (counts["lost"], counts["duplicated"], counts["outOfOrder"]) == (0, 0, 0), counts
        assert counts["acked"] == records, counts


def kill_operator(drill: Drill) -> None:
    """SIGKILL to the process that leads; by the pod where its processes are out of reach.  Another
    test may have killed it just now: then the one that leads next is killed."""
    wait_for("an operator to be killed", lambda: killed_operator(drill) or None, LEADS_S, 0.2)


def killed_operator(drill: Drill) -> bool:
    """Whether one led, which is dead now.  A Lease alone does not say so: it names its holder for
    seconds after that has died, and by the name of its pod, where the kubelet starts another."""
    leases = drill.cluster.items("lease", drill.namespace)
    holder = next((one["spec"].get("holderIdentity") for one in leases), None)
    pod = drill.cluster.get("pod", holder, SYSTEM) if holder else None
    view = f"/v1/clusters/{drill.namespace}/main"
    if pod is None or drill.cluster.view_of(str(holder), view, SYSTEM) is None:
        return False
    if os.environ.get("USE_CURRENT_CONTEXT") == "1":
        arguments = ("-n", SYSTEM, "--grace-period=0", "--force")
        drill.cluster.kubectl("delete", "pod", str(holder), *arguments)
        return True
    found = running(pod, "plimsoll_operator")
    if found is None:
        return False
    try:
        os.kill(found, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def process_of(pod: dict[str, Any], module: str) -> int:
    """The process in a pod of the local node that runs a module."""
    found = running(pod, module)
    assert found is not None, f"no process of {pod['metadata']['name']} runs {module}"
    return found


def running(pod: dict[str, Any], module: str) -> int | None:
    """That process; None: there is none now.  By the pod's uid: pods of two namespaces have the
    same name."""
    uid = pod["metadata"]["uid"]
    for found in Path("/proc").iterdir():
        if not found.name.isdigit():
            continue
        try:
            runs = (found / "cmdline").read_bytes().split(b"\0")
            group = (found / "cgroup").read_text()
        except OSError:
            continue
        # With the cgroup driver of systemd, `_` stands for `-`.
        if module.encode() in runs and uid in group.replace("_", "-"):
            return int(found.name)
    return None
