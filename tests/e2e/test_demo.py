"""`make demo-kubernetes`: a broker killed in mid-write loses no acknowledged record.  Clients log
in."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from dev.demo_kubernetes import NAMESPACE
from dev.kubectl import ROOT, Cluster

TIMEOUT_S = 900
NOTHING = ("acked records lost", "duplicated", "out of order")
TOO_SLOW = 2
"""All is right, but took longer than it may: this machine may have much else to do."""


def timed(said: str) -> list[str]:
    """The lines of what the demo said that name a time and its limit."""
    return [line for line in said.splitlines() if "(limit" in line]


def what_is_wrong_first(said: str) -> str:
    """What the demo said: who reads only the first lines of a failure reads what fell short."""
    wrong = [line for line in said.splitlines() if "SHORT" in line or "demo failed" in line]
    return "\n".join([*wrong, said[-8_000:]])


@pytest.fixture
def cleared(cluster: Cluster) -> Iterator[None]:
    """The demo leaves its cluster up: three brokers that all later tests would run beside.  One
    that somebody had before stays."""
    was_there = cluster.get("namespace", NAMESPACE, NAMESPACE) is not None
    yield
    if not was_there:
        cluster.delete_namespace(NAMESPACE)


@pytest.mark.usefixtures("cleared")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_demo_survives_a_killed_broker(
    cluster: Cluster,
):
    demo = subprocess.run(
        [sys.executable, "-m", "dev.demo_kubernetes"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "OPEN"}
        | cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    said = demo.stdout
    told = what_is_wrong_first(said)
    print(*timed(said), sep="\n")
    assert demo.returncode in (0, TOO_SLOW), told
    assert "logcluster/main is Secure" in said, told
    assert re.search(r"\bok +verdict Passed\b", said), told
    for count in NOTHING:
        assert re.search(rf"\bok +0 {count}\b", said), f"{count}: {told}"
    acked = re.search(r"\backed ([\d,]+)", said.partition("==> verdict")[2])
    assert acked, told
    assert int(acked.group(1).replace(",", "")) > 0, "a run that wrote nothing shows nothing"
