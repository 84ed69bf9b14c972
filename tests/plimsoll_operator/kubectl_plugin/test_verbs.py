"""Verbs of `kubectl plimsoll` over what a session finds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
import yaml
from rich.console import Console
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.plimsoll_operator.test_cluster_views import as_json, shown
from typer.testing import CliRunner

from plimsoll_operator.api.load import from_yaml
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import TOPICS, VERIFICATIONS
from plimsoll_operator.kubectl_plugin import (
    app,
    verbs_cluster,
    verbs_schedules,
    verbs_topics,
    verbs_verify,
)
from plimsoll_operator.kubectl_plugin.shown import (
    Findings,
    Problem,
    ViewUnavailable,
    as_text,
    group,
)
from plimsoll_operator.status import cluster_views
from plimsoll_operator.status.cluster_views import what_if

READY = {"type": "Ready", "status": "True", "reason": "Serving", "message": "All serve."}


class Scene:
    """A session on an API server in memory; `views` by path, none: no operator answers."""

    def __init__(self) -> None:
        self.kube = ScriptedKube()
        self.namespace = "kafka"
        self.cluster = SimpleNamespace(metadata=SimpleNamespace(name="main"))
        self.status: dict[str, Any] = {"conditions": [READY], "brokers": {"ready": 3, "desired": 3}}
        self.views: dict[str, Any] | None = {}
        self.bodies: dict[str, list[Any]] = {}

    async def refresh(self) -> None: ...

    async def see(self, path: str = "", **params: str) -> Any:
        if self.views is None:
            raise ViewUnavailable("No operator that leads the cluster answers.")
        if path not in self.views:
            raise Problem(f"There is no {path.replace('/topics/', 'topic ')}.")
        return self.views[path]

    async def objects(self, kind: Any) -> list[Any]:
        return self.bodies.get(kind.plural, [])

    async def topic_objects(self) -> list[Any]:
        return await self.objects(TOPICS)


def scene(**more: Any) -> Any:
    made = Scene()
    for name, value in more.items():
        setattr(made, name, value)
    return made


def said(found: Findings) -> str:
    out = io.StringIO()
    Console(file=out, width=220).print(group(found))
    return out.getvalue()


def a_topic_view(holder: Any = None) -> Any:
    image = with_topic(an_image(), ((0, 1, 2), (1, 2, 0)), holder, name="Client_made.Topic")
    (topic,) = image.topics.values()
    return as_json(cluster_views.topic_view(shown(image), topic))


async def test_status_without_operator_shows_last_known() -> None:
    found = await verbs_cluster.status(scene(views=None))
    text = said(found)
    assert "No operator that leads the cluster answers." in text
    assert "As shown last" in text
    assert "3 of 3" in text
    assert found.data["view"] is None


async def test_status_counts_running_brokers_despite_refused_shrink() -> None:
    """The operator's view knows how many there are, the LogCluster how many are asked for."""
    image = with_topic(an_image((0, 1, 2, 3, 4)), ((0, 1, 2),))
    view = as_json(
        cluster_views.cluster_view(
            shown(image), ("kafka", "main"), "op-1", cluster_views.survey(image)
        )
    )
    brokers = {"ready": 2, "active": 5, "desired": 2, "ids": [0, 1, 2, 3, 4]}
    status = {"conditions": [READY], "brokers": brokers}
    for views in ({"": view}, None):
        text = said(await verbs_cluster.status(scene(views=views, status=status)))
        assert "5 of 5, the spec asks for 2" in text


async def test_status_shows_the_view_and_the_worst_partitions() -> None:
    image = with_topic(an_image(), ((0, 1, 2),))
    overview = cluster_views.cluster_view(
        shown(image), ("kafka", "main"), "op-1", cluster_views.survey(image)
    )
    view = as_json(overview)
    view["unhealthy"] = [
        {"topic": "orders", "partition": 4, "leader": None, "isr": [], "replicas": [0, 1],
         "margin": -2, "cause": "BrokerFenced", "waitsFor": [0]}
    ]  # fmt: skip
    view["unhealthyTotal"] = 1
    text = said(await verbs_cluster.status(scene(views={"": view})))
    assert "op-1" in text
    assert "BrokerFenced" in text


async def test_brokers_shows_fence_reason_and_disk_room() -> None:
    view = {"/brokers": {"brokers": as_json(cluster_views.broker_views(shown(an_image())))}}
    body = {
        "spec": {"clusterRef": {"name": "main"}, "brokerId": 1},
        "status": {
            "disk": {"used": "9Gi", "free": "0"},
            "fenced": {"since": "2026-11-24T10:00:00Z", "why": "It was silent for 6 s."},
        },
    }
    other = {"spec": {"clusterRef": {"name": "other"}, "brokerId": 2}, "status": {"disk": None}}
    found = await verbs_cluster.brokers(scene(views=view, bodies={"logbrokers": [body, other]}))
    assert "fenced since 2026-11-24T10:00:00Z: It was silent for 6 s." in said(found)
    assert [row["disk"] for row in found.data["brokers"]] == [None, body["status"]["disk"], None]
    assert [bool(row["fenced"]) for row in found.data["brokers"]] == [False, True, False]


async def test_brokers_shows_pools_if_there_are_some() -> None:
    view = {"/brokers": {"brokers": as_json(cluster_views.broker_views(shown(an_image())))}}

    def body(pool: str | None) -> dict[str, Any]:
        spec = {"clusterRef": {"name": "main"}, "brokerId": 1}
        return {"metadata": {"name": "main-1"}, "spec": spec, "status": {"pool": pool}}

    for views in (view, None):
        for pool in ("fast", None):
            made = scene(views=views, bodies={"logbrokers": [body(pool)]})
            text = said(await verbs_cluster.brokers(made))
            assert ("POOL" in text) == ("fast" in text) == bool(pool)


async def test_what_if_names_harm_and_refuses_unknown_brokers() -> None:
    image = with_topic(an_image(), ((0, 1, 2),))
    hurt = scene(views={"/what-if": as_json(what_if(image, (0, 1)))})
    text = said(await verbs_cluster.what_if(hurt, [0, 1]))
    assert "Without brokers 0 and 1, 0 partitions would be offline and 1 under min ISR" in text
    none = scene(views={"/what-if": as_json(what_if(image, (7,)))})
    with pytest.raises(Problem, match="This cluster has no broker 7"):
        await verbs_cluster.what_if(none, [7])


async def test_blocked_lists_waiting_and_unhealthy_objects() -> None:
    waiting = {"action": "Restart", "broker": 1, "reason": "AtMinISR", "until": "0 is back",
               "since": "2026-11-24T12:00:00Z"}  # fmt: skip
    stalled = {"metadata": {"name": "m"}, "status": {"conditions": [
        {"type": "Stalled", "status": "True", "reason": "NoRoom", "message": "The disk is full."},
        {"type": "Ready", "status": "True", "reason": "Completed", "message": "Done."},
    ]}}  # fmt: skip
    found = await verbs_cluster.blocked(
        scene(status={"blocked": [waiting]}, bodies={"reassignments": [stalled]})
    )
    assert found.data["blocked"] == [waiting]
    assert [one["reason"] for one in found.data["objects"]] == ["NoRoom"]
    assert "The disk is full." in said(found)
    assert "Nothing is blocked." in said(await verbs_cluster.blocked(scene(status={})))


async def test_terminal_escape_in_message_is_neutralised() -> None:
    wrong = {"metadata": {"name": "m"}, "status": {"conditions": [
        {"type": "Stalled", "status": "True", "reason": "InvalidConfig",
         "message": "soon\x1b[2J\x9b1A\u202e is no number,\nits type is long."},
    ]}}  # fmt: skip
    found = await verbs_cluster.blocked(scene(status={}, bodies={"topics": [wrong]}))
    shown_text = said(found)
    assert r"soon\x1b[2J\x9b1A\u202e is no number," in shown_text
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown_text)


async def test_topic_without_object_shows_its_deletion_time() -> None:
    image = with_topic(an_image(), ((0, 1, 2),))
    row = as_json(cluster_views.topic_rows(shown(image)))[0]
    session = scene(views={"/topics": {"topics": [row]}})
    assert "will be" not in said(await verbs_topics.topics(session))
    row["deletionAt"] = "2026-11-28T00:00:00Z"
    text = said(await verbs_topics.topics(session))
    assert "its data is deleted at 2026-11-28T00:00:00Z" in text


async def test_adopted_topic_is_valid_yaml_of_actual_state() -> None:
    name = "Client_made.Topic"
    session = scene(views={f"/topics/{name}": a_topic_view()})
    found = await verbs_topics.adopt(session, name)
    (topic,) = from_yaml(found.raw)
    assert topic.metadata.name == "client-made.topic"
    assert (topic.topic_name, topic.spec.partitions) == (name, 2)  # type: ignore[union-attr]
    made = await session.kube.create(TOPICS, yaml.safe_load(found.raw))
    assert made["spec"]["minInSyncReplicas"] == 2


async def test_topic_with_object_is_not_adopted_again() -> None:
    view = a_topic_view() | {"declaredBy": "kafka/orders"}
    with pytest.raises(Problem, match="is already declared by kafka/orders"):
        await verbs_topics.adopt(scene(views={"/topics/orders": view}), "orders")


async def test_leaderless_partition_and_lag_are_shown() -> None:
    view = a_topic_view()
    view["partitions"][0] |= {"leader": None, "isr": [], "elr": [2], "margin": -2}
    view["partitions"][1] |= {"behind": {"0": 12, "2": None}, "bytes": 5_000_000}
    text = said(await verbs_topics.topic(scene(views={"/topics/t": view}), "t"))
    assert "none" in text
    assert "0:12 2:?" in text
    assert "4.8 MiB" in text


async def test_audit_shows_findings_with_brokers() -> None:
    session = scene()
    work = verbs_verify.Auditing(pattern="orders.*", rate="50Mi", user="auditor")
    name = await verbs_verify.begin(session, work)
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    assert made["spec"]["source"] == {
        "existingTopics": {"matchPattern": "orders.*"},
        "bytesPerSecond": "50Mi",
    }
    example = {"topic": "orders", "partition": 1, "offset": 6, "lastOffset": 8, "brokers": [1, 2]}
    status = {
        "phase": "Completed",
        "verdict": "Violated",
        "audited": {"topics": 1, "replicas": 9},
        "evidence": {
            "reportConfigMap": "r",
            "examples": [{**example, "kind": "unreadable", "detail": "its CRC is wrong"}],
        },
    }
    session.kube.put(VERIFICATIONS, {**made, "status": status})
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert "6 to 8" in said(found)
    assert "1 and 2" in said(found)
    assert "unreadable: its CRC is wrong" in said(found)


async def test_audit_of_no_topic_shows_the_refusal() -> None:
    session = scene()
    name = await verbs_verify.begin(session, verbs_verify.Auditing(pattern="nosuch"))
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    held = READY | {"status": "False", "reason": "TopicNotFound", "message": "None matches nosuch."}
    session.kube.put(VERIFICATIONS, {**made, "status": {"phase": "Failed", "conditions": [held]}})
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert "TopicNotFound: None matches nosuch." in said(found)


async def test_resumed_verification_names_the_kept_run() -> None:
    session = scene()
    spec = {"clusterRef": {"name": "main"}, "topic": "t", "produce": {"records": 5}}
    kept = {"persistentVolumeClaim": "proofs"}
    for name, evidence in (("kept", {"evidence": kept}), ("lost", {})):
        meta = {"name": name, "namespace": "kafka", "uid": "0123456789ab"}
        session.kube.put(VERIFICATIONS, {"metadata": meta, "spec": spec | evidence})
    made = session.kube.find(
        VERIFICATIONS, "kafka", await verbs_verify.begin_again(session, "kept")
    )
    assert made["spec"] == spec | {"evidence": kept | {"resume": "kept-01234567"}}
    with pytest.raises(Problem, match=r"has no spec\.evidence"):
        await verbs_verify.begin_again(session, "lost")


async def test_verification_verdict_is_the_exit_code() -> None:
    session = scene(views={"/topics/t": {}})
    work = verbs_verify.Workload(topic="t", records=5, per_second=2, allow_existing=True)
    name = await verbs_verify.begin(session, work)
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    assert made["spec"]["produce"] == {"records": 5, "recordsPerSecond": 2}
    assert made["spec"]["allowExisting"] is True
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (False, 0)
    for phase, text in (
        ("Producing", "The Verification has sent 3 of 5 records (60 %)."),
        ("Verifying", "1 of 2 acknowledged records were read back."),
    ):
        counts = {"sent": 3, "acked": 2, "read": 1}
        session.kube.put(VERIFICATIONS, {**made, "status": {"phase": phase, "counts": counts}})
        assert text in said(await verbs_verify.progress(session, name))
    for verdict, code in (("Passed", 0), ("Violated", 1), ("Inconclusive", 1)):
        status = {"phase": "Completed", "verdict": verdict, "counts": {"acked": 5, "lost": 1}}
        session.kube.put(VERIFICATIONS, {**made, "status": status})
        found = await verbs_verify.progress(session, name)
        assert (found.over, found.code) == (True, code)
    disabled = READY | {"status": "False", "reason": "VerificationDisabled", "message": "No Spark."}
    session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [disabled]}})
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert "No Spark." in said(found)
    assert ", which had not started." in said(found)
    left = [key for key in session.kube.objects if key[0] == "verifications"]
    assert not left, "others of the topic would wait for it"


async def test_refused_verification_without_delete_right_is_reported_staying() -> None:
    session = scene(views={"/topics/t": {}})
    name = await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5, user="no"))
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    unknown = READY | {
        "status": "False",
        "reason": "UserNotFound",
        "message": "There is no no.",
    }
    session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [unknown]}})
    session.kube.delete = AsyncMock(side_effect=Rejected(403, "not you"))
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert f"run `kubectl delete verification {name} -n kafka`: " in said(found)


async def test_verification_that_starts_after_all_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = scene(views={"/topics/t": {}})
    name = await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5))
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    disabled = READY | {"status": "False", "reason": "VerificationDisabled", "message": "No Spark."}
    session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [disabled]}})
    get = session.kube.get

    async def begun_meanwhile(*asked: Any) -> Any:
        body = await get(*asked)
        session.kube.put(VERIFICATIONS, {**made, "status": {"phase": "Running"}})
        return body

    monkeypatch.setattr(session.kube, "get", begun_meanwhile)
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (False, 0)
    assert session.kube.find(VERIFICATIONS, "kafka", name)["status"] == {"phase": "Running"}


async def test_two_verifications_of_one_second_have_two_names() -> None:
    session = scene(views={"/topics/t": {}})
    work = verbs_verify.Workload(topic="t", records=5)
    assert len({await verbs_verify.begin(session, work) for _ in range(3)}) == 3


async def test_verification_of_undeclared_topic_is_refused() -> None:
    session = scene()
    with pytest.raises(Problem) as caught:
        await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5))
    assert str(caught.value) == (
        "Cannot verify topic t. There is no topic t. No Topic object of LogCluster main in kafka "
        "declares topic t either; apply one, or create the topic."
    )
    assert not [key for key in session.kube.objects if key[0] == "verifications"]
    for spec, name in (({}, "t"), ({"topicName": "t"}, "other")):
        declared = {"metadata": {"name": name}, "spec": spec}
        session = scene(bodies={"topics": [declared]})
        name = await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5))
        assert session.kube.find(VERIFICATIONS, "kafka", name), "it waits for the topic to be made"


async def test_verification_without_operator_ends_on_missing_topic() -> None:
    session = scene(views=None)
    name = await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5))
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    lacks = READY | {"status": "False", "reason": "TopicNotFound", "message": "There is no t."}
    session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [lacks]}})
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert f"Deleted Verification {name}, which had not started." in said(found)
    session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [lacks]}})
    session.bodies = {"topics": [{"metadata": {"name": "t"}, "spec": {}}]}
    assert not (await verbs_verify.progress(session, name)).over


async def test_refusal_of_field_names_command_option() -> None:
    session = scene(views={"/topics/t": {}})
    name = await verbs_verify.begin(session, verbs_verify.Workload(topic="t", records=5))
    made = session.kube.find(VERIFICATIONS, "kafka", name)
    held = {"type": "Ready", "status": "False", "reason": "TopicNotEmpty",
            "message": "use a topic of its own, or set allowExisting: true"}  # fmt: skip
    session.kube.put(VERIFICATIONS, {**made, "status": {"phase": "Failed", "conditions": [held]}})
    found = await verbs_verify.progress(session, name)
    assert (found.over, found.code) == (True, 1)
    assert "allowExisting" in said(found)
    assert "--allow-existing" in said(found)


async def test_verification_without_login_names_the_option() -> None:
    session = scene(views={"/topics/t": {}})
    closed = READY | {"status": "False", "reason": "ListenerMissing", "message": "None is open."}
    for user in (None, "app"):
        work = verbs_verify.Workload(topic="t", records=5, user=user)
        name = await verbs_verify.begin(session, work)
        made = session.kube.find(VERIFICATIONS, "kafka", name)
        assert made["spec"].get("user") == user
        session.kube.put(VERIFICATIONS, {**made, "status": {"conditions": [closed]}})
        found = await verbs_verify.progress(session, name)
        assert found.over is (user is None), "with a login a listener may be opened yet"
        assert ("--user" in said(found)) is (user is None)


def test_json_and_yaml_hold_the_same_data() -> None:
    data = {"changes": [{"isr": [0, 1]}]}
    assert json.loads(as_text(data, "json")) == yaml.safe_load(as_text(data, "yaml")) == data


def test_every_verb_has_help_and_common_options() -> None:
    runner = CliRunner()
    verbs = ("status", "topics", "topic", "why", "what-if", "brokers", "blocked", "adopt", "verify",
             "report")  # fmt: skip
    for verb in verbs:
        done = runner.invoke(app.app, [verb, "-h"], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        for option in ("--namespace", "--cluster", "--output", "--watch", "--context"):
            assert option in done.output, (verb, option)


def test_no_kubeconfig_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    nowhere = ["status", "--kubeconfig", str(tmp_path / "none")]
    done = CliRunner().invoke(app.app, nowhere)
    assert done.exit_code == 1
    assert "there is no kubeconfig at" in done.output
    assert "Traceback" not in done.output


def a_schedule(name: str, cluster: str = "main", **status: Any) -> Any:
    spec = {"schedule": "0 2 * * *", "template": {"clusterRef": {"name": cluster}}}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


async def test_schedules_show_last_verdicts_of_the_cluster() -> None:
    runs = [
        {
            "name": "nightly-20261102-0200",
            "verdict": "Violated",
            "reason": "RecordsLost",
            "lost": 3,
        },
        {"name": "nightly-20261101-0200", "verdict": "Passed", "recordsPerSecond": 950.5},
    ]
    stated = {"lastScheduleTime": "2026-11-04T02:00:00Z", "periodsWithoutVerdict": 0}
    nightly = a_schedule("nightly", runs=runs, trend={"violated": 1}, **stated)
    bodies = {"verificationschedules": [nightly, a_schedule("foreign", "second")]}
    found = await verbs_schedules.schedules(scene(bodies=bodies))
    text = said(found)
    assert "RecordsLost" in text
    assert "950.5" in text
    assert "foreign" not in text
    assert found.code == 1
    runs.pop(0)
    assert (await verbs_schedules.schedules(scene(bodies=bodies))).code == 0
    assert "2026-11-04T02:00:00Z" not in text, "a due time that was left out"
    none = await verbs_schedules.schedules(scene(bodies={}))
    assert "no VerificationSchedule" in said(none)
