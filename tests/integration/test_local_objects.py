"""The objects of a local cluster: read and written through its API server, kept between runs."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.listening import OURS
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

TOPIC = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "t"},
    "spec": {"clusterRef": {"name": "local"}, "partitions": 3, "minInSyncReplicas": 2},
}
VERIFICATION = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "Verification",
    "metadata": {"name": "proof"},
    "spec": {"clusterRef": {"name": "local"}, "topic": "t", "produce": {"records": 1}},
}


def ask(
    cluster: LocalCluster, method: str, path: str, body: Any = None, media: str = "json"
) -> tuple[int, Any]:
    """One request to the API server where its kubeconfig says that it is."""
    assert cluster.api.url == cluster.ready["api"]
    try:
        return cluster.api.ask(method, path, body, media=f"application/{media}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def items(cluster: LocalCluster, path: str) -> list[Any]:
    return list(ask(cluster, "GET", path)[1]["items"])


def condition(body: Any, type_: str = "Ready") -> tuple[str, str]:
    """(status, reason)."""
    shown = (body.get("status") or {}).get("conditions") or ()
    return next(((c["status"], c["reason"]) for c in shown if c["type"] == type_), ("", ""))


def topic_status(cluster: LocalCluster) -> tuple[str, str]:
    return condition(ask(cluster, "GET", f"{OURS}/topics/t")[1])


def pods(cluster: LocalCluster) -> dict[str, str]:
    """The uid of each pod, by name."""
    found = items(cluster, "/api/v1/namespaces/default/pods")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def test_topic_applied_through_api_survives_restart(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path / "c")
    with cluster:
        assert ask(cluster, "POST", f"{OURS}/topics", TOPIC)[0] == 201
        wait_for("it is served", lambda: topic_status(cluster) == ("True", "Serving"))
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(300)])
        before, api = pods(cluster), cluster.ready["api"]
    with cluster:
        assert cluster.ready["api"] == api
        assert pods(cluster) == before
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 3))
        assert ask(cluster, "DELETE", f"{OURS}/topics/t")[0] == 200
        wait_for(
            "its deletion is committed",
            lambda: any(r["type"] == "TopicOrphaned" for r in cluster.metadata_records()),
        )


def test_verification_is_refused_where_spark_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_SPARK_JARS", str(tmp_path / "no-jars"))
    cluster = LocalCluster(tmp_path / "c", brokers=1)
    with cluster:
        assert ask(cluster, "POST", f"{OURS}/verifications", VERIFICATION)[0] == 201
        wait_for(
            "the Verification says so",
            lambda: (
                condition(ask(cluster, "GET", f"{OURS}/verifications/proof")[1])
                == ("False", "VerificationDisabled")
            ),
        )
        (shown,) = ask(cluster, "GET", f"{OURS}/verifications/proof")[1]["status"]["conditions"]
        assert str(tmp_path / "no-jars") in shown["message"]
        assert items(cluster, "/apis/batch/v1/namespaces/default/jobs") == []


def scheduled(cluster: LocalCluster) -> list[str]:
    """The names of the Verifications that the schedule has made."""
    found = items(cluster, f"{OURS}/verifications")
    return [one["metadata"]["name"] for one in found]


def test_schedule_starts_verifications_and_survives_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_SPARK_JARS", str(tmp_path / "no-jars"))
    schedule = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VerificationSchedule",
        "metadata": {"name": "often", "namespace": "default"},
        "spec": {
            "schedule": "* * * * *",
            "template": {**VERIFICATION["spec"], "allowExisting": True},
        },
    }
    path = f"{OURS}/verificationschedules"
    cluster = LocalCluster(tmp_path / "c", brokers=1)
    with cluster:
        assert ask(cluster, "POST", path, schedule)[0] == 201
        (made,) = wait_for("a minute begins", lambda: scheduled(cluster), 90)
        shown = wait_for(
            "it is shown as active",
            lambda: (ask(cluster, "GET", f"{path}/often")[1].get("status") or {}).get("active"),
        )
        assert shown == [made]
        assert condition(ask(cluster, "GET", f"{path}/often")[1]) == ("True", "Scheduled")
    with cluster:
        assert scheduled(cluster) == [made], "a start is made once"
        assert ask(cluster, "DELETE", f"{path}/often")[0] == 200
        wait_for("its Verifications go with it", lambda: not scheduled(cluster))


def log_broker(cluster: LocalCluster, broker: int) -> Any:
    return ask(cluster, "GET", f"{OURS}/logbrokers/local-{broker}")[1]


def assert_brokers_are_shown(cluster: LocalCluster) -> None:
    """Whatever somebody does to their objects."""
    merge = "merge-patch+json"
    shown = wait_for(
        "each broker says what it has",
        lambda: (
            all(
                "disk" in (log_broker(cluster, b).get("status") or {})
                and condition(log_broker(cluster, b)) == ("True", "Serving")
                for b in range(3)
            )
            and [log_broker(cluster, b)["status"] for b in range(3)]
        ),
    )
    assert [one["state"] for one in shown] == ["Active"] * 3
    assert {one["node"] for one in shown} == {"this-machine"}
    wrong = {"spec": {"brokerId": 7}}
    assert ask(cluster, "PATCH", f"{OURS}/logbrokers/local-0", wrong, merge)[0] == 200
    status = {"status": {"state": "Fenced", "leaders": 77}}
    assert ask(cluster, "PATCH", f"{OURS}/logbrokers/local-1/status", status, merge)[0] == 200
    assert ask(cluster, "DELETE", f"{OURS}/logbrokers/local-2")[0] == 200
    wait_for(
        "what somebody wrote is gone, and what somebody deleted is back",
        lambda: (
            log_broker(cluster, 0).get("spec", {}).get("brokerId") == 0
            and log_broker(cluster, 1)["status"]["state"] == "Active"
            and log_broker(cluster, 1)["status"]["leaders"] < 77
            and condition(log_broker(cluster, 2)) == ("True", "Serving")
        ),
    )


def state_changes_told(cluster: LocalCluster, broker: int) -> list[Any]:
    """The lines of JSON about state changes in a broker's log."""
    lines = (cluster.directory / "logs" / f"broker-{broker}.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one["logger"] == "plimsoll.state_changes"]


def test_config_change_restarts_brokers_in_turn(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path / "c")
    logging = {"spec": {"logging": {"level": "Debug", "format": "Json"}}}
    patch = {"spec": {"config": {"log.retention.ms": "777777"}}}
    merge = "merge-patch+json"
    with cluster:
        assert ask(cluster, "PATCH", f"{OURS}/logclusters/local", logging, merge)[0] == 200
        wait_for(
            "broker 0 writes JSON from now on, and runs on",
            lambda: "{" in (cluster.directory / "logs" / f"broker-{0}.log").read_text(),
        )
        cluster.create_topic("t", 3, {"min.insync.replicas": "2"})
        wait_for(
            "broker 0 tells of the replicas that it was asked to start",
            lambda: (
                [
                    (one["stage"], one["stateChange"], one["topic"])
                    for one in state_changes_told(cluster, 0)
                ].count(("completed", "start-replica", "t"))
                == 3
            ),
        )
        assert_brokers_are_shown(cluster)
        before, pids = pods(cluster), cluster.pids
        assert ask(cluster, "PATCH", f"{OURS}/logclusters/local", patch, merge)[0] == 200
        wait_for(
            "every pod is another one",
            lambda: (
                not set(before.values()) & set(pods(cluster).values()) and len(pods(cluster)) == 3
            ),
            120,
        )
        cluster.wait_isr("t", 3)
        wait_for(
            "every restart has ended",
            lambda: sum(r["type"] == "RestartEnded" for r in cluster.metadata_records()) == 3,
        )
        assert not set(pids.values()) & set(cluster.broker_pids)
        configs = [cluster.config(broker)["configs"] for broker in range(3)]
        assert all(config["log.retention.ms"] == "777777" for config in configs)
        after = pods(cluster)
    with cluster:
        assert pods(cluster) == after
        assert cluster.config(0)["configs"]["log.retention.ms"] == "777777"


def test_directory_without_its_objects_keeps_its_topics(
    tmp_path: Path,
) -> None:
    file = tmp_path / "topic.yaml"
    text = {**TOPIC, "spec": {**TOPIC["spec"], "config": {"retention.ms": 100_000}}}
    file.write_text(yaml.safe_dump(text))
    cluster = LocalCluster(tmp_path / "c", files=[file])
    with cluster:
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(300)])
        uid = ask(cluster, "GET", f"{OURS}/topics/t")[1]["metadata"]["uid"]
    (cluster.directory / "objects.json").unlink()
    cluster.files = []
    with cluster:
        found = ask(cluster, "GET", f"{OURS}/topics/t")[1]
        assert found["metadata"]["uid"] == uid
        assert found["spec"]["config"] == {"retention.ms": "100000"}
        wait_for("it is served", lambda: topic_status(cluster) == ("True", "Serving"))
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 3))
        lost = [r for r in cluster.metadata_records() if r["type"] == "TopicOrphaned"]
        assert lost == []


@pytest.mark.parametrize(
    "deleted", [pytest.param(False, marks=pytest.mark.long), True], ids=["edited", "deleted"]
)
def test_grown_cluster_shrinks_to_its_file(tmp_path: Path, deleted: bool) -> None:
    cluster = LocalCluster(tmp_path / "c", brokers=2)
    grow = {"spec": {"brokers": {"count": 3}}}
    with cluster:
        merge = "merge-patch+json"
        assert ask(cluster, "PATCH", f"{OURS}/logclusters/local", grow, merge)[0] == 200
        wait_for("broker 2 takes part", lambda: len(cluster.known_brokers()) == 3)
        cluster.create_topic("t", 6)
        acked = produce(cluster.bootstrap, "t", [b"%d" % n for n in range(300)])
        before = {b for p in cluster.topic("t").values() for b in p.replicas}
        assert before == {0, 1, 2}
        if deleted:
            assert ask(cluster, "DELETE", f"{OURS}/logclusters/local")[0] == 200
    with cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        wait_for("broker 2 is emptied and gone", lambda: cluster.known_brokers() == {0, 1}, 90)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 6))
