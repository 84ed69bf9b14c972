"""A continuous run on Kubernetes through random faults: is a verdict there each minute, and right?

    python -m bench.node_drills [--minutes 30] [--faults 10] [--seed 1]

The run uses the local node. With USE_CURRENT_CONTEXT=1 it uses the cluster of kubectl's current
context instead; the chart there must allow drills. It creates three brokers, a topic, a claim for
evidence, and a Verification with `mode: Continuous` and a drill that is drawn from the seed. It
prints each fault and what the fault did, each window's verdict as the window ends, and the verdict
at the end. Exit code 1 if a window is Violated, if fewer windows ended than minutes less three, or
if no fault was injected.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import uuid
from typing import Any

from dev.kubectl import RESTRICTED, Cluster, CommandFailed, wait_for
from tests.e2e import release
from tests.e2e.test_node import a_claim
from tests.e2e.test_operator import a_log_cluster, a_topic, apply, ready

BROKERS, PARTITIONS = 3, 6
TOPIC, NAME, CLAIM = "orders", "canary", "proofs"
OF_A_BROKER = ("KillBroker", "Evict", "LoseVolume", "CutLinks", "SlowLinks", "FillDisk")
OTHERS = ("KillOperator", "CutApiServer", "RollAll", "PreferLeaders", "Reassign")
FIRST_S, LAST_S = 45, 90
"""Seconds without a fault at the start and at the end."""
LOST_WINDOWS = 3
"""At the start, until Spark runs; and those that driver and operator are late with."""
END_S = 300
DRIVER = {"requests": {"cpu": "10m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}


def drawn(seed: int, count: int, seconds: int) -> list[dict[str, Any]]:
    """Return a drill of `count` faults in `seconds`, in the order of their times. None comes again
    before each came once."""
    chance = random.Random(seed)
    faults: list[str] = []
    while len(faults) < count:
        faults += chance.sample(OF_A_BROKER + OTHERS, len(OF_A_BROKER + OTHERS))
    apart = (seconds - FIRST_S - LAST_S) / count
    steps = []
    for number, fault in enumerate(faults[:count]):
        at = FIRST_S + (number + chance.random() * 0.5) * apart
        leader = {"leaderOf": {"topic": TOPIC, "partition": chance.randrange(PARTITIONS)}}
        broker = {"broker": chance.randrange(BROKERS)}
        step: dict[str, Any] = {"at": f"{at:.0f}s", "fault": fault}
        if fault in OF_A_BROKER:
            step["target"] = chance.choice((leader, broker))
        elif fault == "Reassign":
            step["target"] = leader
        steps.append(step)
    return steps


def begin(cluster: Cluster, namespace: str, seconds: int, drill: list[dict[str, Any]]) -> None:
    """Create the cluster, the topic, the claim and the Verification."""
    topic = a_topic(TOPIC, partitions=PARTITIONS, replicationFactor=3, minInSyncReplicas=2)
    log_cluster = a_log_cluster(maintenance={"allowDrills": True})
    apply(cluster, namespace, log_cluster, topic, a_claim(CLAIM))
    ready(cluster, namespace, "logcluster", "main")
    ready(cluster, namespace, "topic", TOPIC)
    spec = {
        "clusterRef": {"name": "main"},
        "topic": TOPIC,
        "mode": "Continuous",
        "window": "1m",
        "deadlineSeconds": seconds,
        "produce": {"recordsPerSecond": 200, "recordBytes": 200},
        "runner": {"resources": DRIVER},
        "evidence": {"persistentVolumeClaim": CLAIM, "keep": "Always"},
        "drill": drill,
    }
    kind = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "Verification"}
    apply(cluster, namespace, {**kind, "metadata": {"name": NAME}, "spec": spec})


class Told:
    """Prints what the Verification's status says, each thing once."""

    def __init__(self) -> None:
        self.windows: dict[str, str] = {}
        self.injected = 0
        self._faults: set[tuple[str, str, str]] = set()

    def take(self, status: dict[str, Any]) -> None:
        for mark in status.get("drill", ()):
            of = (mark["fault"], mark.get("time", ""), mark.get("result", ""))
            if of not in self._faults and of[2] not in ("", "Begun"):
                self._faults.add(of)
                self.injected += of[2] == "Injected"
                print(f"{of[1]} {of[0]}: {of[2]}: {mark.get('message', '')}", flush=True)
        for window in reversed((status.get("continuous") or {}).get("recent", ())):
            if window["start"] not in self.windows:
                self.windows[window["start"]] = window["verdict"]
                figures = f"{window.get('acked', 0)} acked, p99 {window.get('p99Milliseconds')} ms"
                told = f"{window['verdict']} ({window['reason']})"
                print(f"{window['end']} window: {told}: {figures}", flush=True)


def followed(cluster: Cluster, namespace: str, told: Told, within_s: float) -> dict[str, Any]:
    """Print what happens until the Verification ends; return its last status."""

    def look() -> dict[str, Any] | None:
        found = cluster.get("verification", NAME, namespace) or {}
        status: dict[str, Any] = found.get("status") or {}
        told.take(status)
        return status if status.get("phase") in ("Completed", "Failed") else None

    return wait_for("the end of the Verification", look, within_s, every_s=5)


def main() -> int:
    """Return 0 if no window was Violated, and there were enough of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seconds = 60 * options.minutes
    drill = drawn(options.seed, options.faults, seconds)
    cluster = release.reached()
    release.install(cluster)
    namespace, told = f"drills-{uuid.uuid4().hex[:8]}", Told()
    cluster.make_namespace(namespace, RESTRICTED)
    try:
        begin(cluster, namespace, seconds, drill)
        begun_s = time.monotonic()
        status = followed(cluster, namespace, told, seconds + END_S)
        took_s = time.monotonic() - begun_s
    except Exception:
        with_logs(cluster, namespace)
        raise
    finally:
        cluster.delete_namespace(namespace)
    state = status.get("continuous") or {}
    numbers = {name: state.get(name, 0) for name in ("passed", "violated", "inconclusive")}
    counts = status.get("counts") or {}
    print(f"seed {options.seed}, {took_s:.0f} s: {status['verdict']}; windows {numbers}; ", end="")
    print(f"{state.get('drivers')} drivers; {counts.get('acked')} acknowledged; ", end="")
    print(f"{told.injected} of {options.faults} faults injected")
    enough = sum(numbers.values()) >= options.minutes - LOST_WINDOWS
    good = status["verdict"] != "Violated" and not numbers["violated"]
    return 0 if good and enough and told.injected else 1


def with_logs(cluster: Cluster, namespace: str) -> None:
    """Print the end of the driver's log, and what the Verification's status says."""
    try:
        print(cluster.kubectl("get", "verification", NAME, "-n", namespace, "-o", "yaml"))
        print(cluster.kubectl("logs", f"job/{NAME}-driver", "-n", namespace, "--tail", "100"))
    except CommandFailed as error:
        print(error)


if __name__ == "__main__":
    sys.exit(main())
