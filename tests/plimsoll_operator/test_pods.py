"""A pod proves a broker's death only when it is that very lifetime's pod, and really over."""

import pytest

from plimsoll_operator.leadership.pod_evidence import judge


def a_pod(uid: str = "u", phase: str = "Running", **state: dict) -> dict:
    container = {"name": "broker", "state": state.get("state", {"running": {}})}
    container |= {key: value for key, value in state.items() if key != "state"}
    return {
        "metadata": {"name": "main-broker-0-0", "uid": uid},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("pod", "proof"),
    [
        (a_pod(), None),
        (a_pod(uid="other"), "was replaced"),
        (a_pod(phase="Failed"), "has ended"),
        (a_pod(state={"terminated": {"exitCode": 137}}), "has ended"),
        (a_pod(state={"waiting": {"reason": "CrashLoopBackOff"}}), None),
        (a_pod(lastState={"terminated": {"exitCode": 137}}), None),
        (a_pod() | {"metadata": {"name": "p", "uid": "u", "deletionTimestamp": "now"}}, None),
    ],
    ids=[
        "running",
        "other uid",
        "failed",
        "container ended",
        "waiting to restart",
        "an earlier container ended",
        "terminating is not dead",
    ],
)
def test_pod_proves_death_when_finished_or_replaced(pod, proof):
    sentence = judge(pod, "u")
    assert (sentence is None) if proof is None else proof in sentence
