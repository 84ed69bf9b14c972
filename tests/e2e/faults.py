"""What goes wrong on the local node, prepared: each within a `with`, and mended at its end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dev.kubectl import Cluster
from tests.e2e.drill import SYSTEM, Drill, process_of
from tests.integration.volume import Volume

API_SERVICE_IP = "198.19.0.1"
"""Of dev/node.sh: by which pods reach the API server."""
REPLICATION_PORT = 9091
SLOW = "64kbit"


@contextmanager
def paused(drill: Drill, broker: int) -> Iterator[None]:
    """A broker hangs: its sockets stay open, and nothing answers.  Nobody ends its process, since a
    stopped one is not hung."""
    pid = drill.process(broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def full(volume: Volume) -> Iterator[None]:
    """No byte is free on a broker's volume."""
    volume.fill(left=0)
    try:
        yield
    finally:
        volume.make_room()


@contextmanager
def slow_replication(drill: Drill, broker: int) -> Iterator[None]:
    """What leaders send to a broker's followers trickles; it hears the controller and its clients
    as ever."""
    within = inside(drill.process(broker))
    shown = _run(*within, "ip", "-o", "link", "show", "eth0")
    number = shown.split("@if", 1)[1].split(":", 1)[0]
    # The other end, on the node: what leaves there is what the pod receives.
    lines = _run("ip", "-o", "link", "show").splitlines()
    device = next(line.split(": ")[1] for line in lines if line.startswith(f"{number}: "))
    device = device.split("@")[0]
    tc = ("tc", "qdisc", "add", "dev", device)
    of_class = ("tc", "class", "add", "dev", device, "parent", "1:", "classid")
    port = ("match", "ip", "sport", str(REPLICATION_PORT), "0xffff")
    _run(*tc, "root", "handle", "1:", "htb", "default", "10")
    try:
        _run(*of_class, "1:10", "htb", "rate", "10gbit")
        _run(*of_class, "1:20", "htb", "rate", SLOW)
        parent = ("parent", "1:", "protocol", "ip", "u32")
        _run("tc", "filter", "add", "dev", device, *parent, *port, "flowid", "1:20")
        yield
    finally:
        # The pod may be gone, and its device with it.
        with suppress(subprocess.CalledProcessError):
            _run("tc", "qdisc", "del", "dev", device, "root")


@contextmanager
def no_api_server(drill: Drill) -> Iterator[None]:
    """The operator's pods cannot reach the API server any more; everybody else can."""
    pods = drill.cluster.items("pods", SYSTEM, "app.kubernetes.io/component=operator")
    cut = [inside(process_of(pod, "plimsoll_operator")) for pod in pods]
    for within in cut:
        _run(*within, "ip", "route", "add", "unreachable", API_SERVICE_IP)
    try:
        yield
    finally:
        for within in cut:
            # With the pod its routes are gone.
            with suppress(subprocess.CalledProcessError):
                _run(*within, "ip", "route", "del", "unreachable", API_SERVICE_IP)


def evict(cluster: Cluster, namespace: str, broker: int) -> None:
    """Do what `kubectl drain` does to each pod of a node. Raises CommandFailed if the broker's
    PodDisruptionBudget refuses."""
    name = f"main-broker-{broker}-0"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def inside(pid: int) -> tuple[str, ...]:
    """The beginning of a command that runs in the network of a process."""
    return "nsenter", "-t", str(pid), "-n"


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    return done.stdout
