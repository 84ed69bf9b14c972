"""`kubectl plimsoll verify` of a continuous run: creates one, and shows its windows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_operator.kubectl_plugin.test_verbs import READY, said, scene
from typer.testing import CliRunner

from plimsoll_operator.kube.resources import VERIFICATIONS
from plimsoll_operator.kubectl_plugin import app, verbs_verify
from plimsoll_operator.kubectl_plugin.shown import Problem
from plimsoll_operator.kubectl_plugin.verbs_verify import Workload

ROW = {
    "end": "2026-11-20T15:01:00Z",
    "verdict": "Passed",
    "reason": "AllChecksPassed",
    "acked": 6_000,
    "recordsPerSecond": 99.5,
    "p99Milliseconds": 8.25,
}
LOSS = {"topic": "t", "partition": 2, "offset": 17, "kind": "unreadable", "brokers": [1]}


async def a_run(session: Any, **work: Any) -> Any:
    """Create a continuous run; the object."""
    name = await verbs_verify.begin(session, Workload(topic="t", records=5, window="10s", **work))
    return session.kube.find(VERIFICATIONS, "kafka", name)


def tell(session: Any, made: Any, verdict: str = "Passed", **state: Any) -> None:
    status = {
        "phase": "Running",
        "verdict": verdict,
        "counts": {"acked": 6_000},
        "conditions": [READY],
        "continuous": {"windowSeconds": 10, "since": "2026-11-20T15:00:00Z"} | state,
    }
    session.kube.put(VERIFICATIONS, {**made, "status": status})


async def test_continuous_run_is_created_with_a_rate() -> None:
    session = scene(views={"/topics/t": {}})
    assert (await a_run(session, per_second=70))["spec"] == {
        "clusterRef": {"name": "main"},
        "topic": "t",
        "mode": "Continuous",
        "window": "10s",
        "produce": {"recordsPerSecond": 70},
    }
    assert (await a_run(session))["spec"]["produce"] == {"recordsPerSecond": 100}


async def test_new_run_is_followed_to_its_first_window() -> None:
    session = scene(views={"/topics/t": {}})
    made = await a_run(session)
    name = made["metadata"]["name"]
    tell(session, made, "", drivers=1)
    assert not (await verbs_verify.progress(session, name)).over
    for verdict, code in (("Passed", 0), ("Violated", 1)):
        tell(session, made, verdict, drivers=1, recent=[ROW | {"verdict": verdict}])
        found = await verbs_verify.progress(session, name)
        assert (found.over, found.code) == (True, code)
    assert f"--show {name} -n kafka --watch" in said(found)


async def test_run_shows_windows_rate_lag_and_restarts() -> None:
    session = scene(views={"/topics/t": {}})
    made = await a_run(session)
    rows = [ROW | {"verdict": "Violated", "reason": "RecordsLost"}, ROW]
    lag = {"waiting": 123, "behind": 456, "drivers": 4}
    told = {"recent": rows, "lastLoss": LOSS, "lastLossTime": ROW["end"]}
    told["lastViolation"] = {"end": ROW["end"], "message": "a batch of t-2"}
    tell(session, made, "Violated", passed=7, violated=1, inconclusive=0, **lag, **told)
    found = await verbs_verify.show(session, made["metadata"]["name"])
    assert (found.over, found.code) == (False, 1)
    lines = [one.split() for one in said(found).splitlines()]
    assert ["7", "1", "0", "99.5", "123", "456", "3"] in lines
    assert [ROW["end"], "Violated", "RecordsLost", "6000", "99.5", "8.25"] in lines
    assert f"in the window that ended at {ROW['end']}: a batch of t-2." in said(found)
    assert "(unreadable): t-2 at offset 17, read from broker 1" in said(found)
    tell(session, made, "Passed", acknowledged=ROW["end"], **told)
    found = await verbs_verify.show(session, made["metadata"]["name"])
    assert found.code == 0
    assert f"Passed (earlier violations are acknowledged until {ROW['end']})" in said(found)
    assert f"ended at {ROW['end']} (acknowledged until {ROW['end']}): a batch" in said(found)


async def test_shown_verification_is_never_deleted() -> None:
    session = scene()
    refused = READY | {"status": "False", "reason": "ClusterNotFound", "message": "No cluster."}
    body = {"metadata": {"name": "other", "namespace": "kafka", "uid": "u"}, "spec": {"topic": "t"}}
    session.kube.put(VERIFICATIONS, body | {"status": {"conditions": [refused]}})
    found = await verbs_verify.show(session, "other")
    assert "No cluster." in said(found)
    assert session.kube.find(VERIFICATIONS, "kafka", "other")
    with pytest.raises(Problem):
        await verbs_verify.show(session, "none")


def test_options_of_the_command_make_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Workload] = []
    monkeypatch.setattr(app, "_run", lambda _, act: asked.append(act._begin.keywords["work"]))
    for words in (["--continuous", "--rate", "7", "--user", "u"], ["--records", "3"]):
        done = CliRunner().invoke(app.app, ["verify", "orders", *words])
        assert done.exit_code == 0, done.output
    assert asked == [
        Workload(topic="orders", records=10_000, per_second=7, user="u", window="1m"),
        Workload(topic="orders", records=3),
    ]
