"""`plimsoll acl explain`: what decides, by what is committed and by what objects declare."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import AsyncMock

import pytest
import yaml
from tests.plimsoll_operator.builders import a_cluster, a_cluster_body
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from typer.testing import CliRunner

from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion, Ground
from plimsoll_operator import acl_command
from plimsoll_operator.acl_command import (
    BY_OBJECTS,
    RightsFound,
    app,
    by_declaration,
    by_what_is_committed,
)
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.resources import LOG_CLUSTERS, USERS
from plimsoll_operator.kubectl_plugin.shown import Problem
from plimsoll_operator.rights_explanation import Explanation, declared, explanation, question

READ = AclQuestion("User:writer", "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "orders")
ENFORCED = a_cluster(authorization={"mode": "Enforce", "superUsers": ["User:admin"]})


def explain(cluster: LogCluster, users: list[User], asked: AclQuestion) -> Explanation:
    return explanation(declared(cluster, users), asked)


def a_user(*rules: dict[str, Any], name: str = "writer") -> User:
    return from_object(a_body(*rules, name=name), User)


def a_body(*rules: dict[str, Any], name: str = "writer") -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": name, "namespace": "kafka"},
        "spec": {"clusterRef": {"name": "main"}, "acls": list(rules)},
    }


def on_topic(name: str, *operations: str, **more: str) -> dict[str, Any]:
    return {"resource": {"type": "Topic", "name": name}, "operations": [*operations], **more}


def test_deciding_rule_is_named_with_its_user() -> None:
    found = explain(ENFORCED, [a_user(on_topic("orders", "Read"))], READ)
    assert found.allowed
    assert found.stated_by == ("User kafka/writer",)
    assert found.sentence == (
        "The principal may do this: User kafka/writer states: Allow User:writer from * Read on "
        "Topic orders."
    )


def test_deny_that_wins_is_named() -> None:
    users = [a_user(on_topic("orders", "All"), on_topic("*", "Read", permission="Deny"))]
    found = explain(ENFORCED, users, READ)
    assert not found.allowed
    assert found.rule == "Deny User:writer from * Read on Topic *"


def test_smallest_sufficient_rule_is_suggested() -> None:
    found = explain(ENFORCED, [a_user(on_topic("other", "Read"))], READ)
    assert not found.allowed
    assert found.needed == "Allow User:writer from 10.0.0.1 Read on Topic orders"
    rule = on_topic("orders", "Read", host="10.0.0.1")
    assert explain(ENFORCED, [a_user(rule)], READ).allowed


def test_super_users_and_modes_are_said() -> None:
    admin = READ._replace(principal="User:admin")
    assert "super user" in explain(ENFORCED, [], admin).sentence
    assert "mode is Off" in explain(a_cluster(), [], READ).sentence
    audited = a_cluster(authorization={"mode": "Audit"})
    assert "mode is Audit" in explain(audited, [], READ).sentence
    open_ = a_cluster(authorization={"mode": "Enforce", "allowEveryoneIfNoAcl": True})
    assert explain(open_, [], READ).allowed
    assert not explain(open_, [a_user(on_topic("orders", "Write"), name="x")], READ).allowed


def on_cluster(operation: AclOperation) -> AclQuestion:
    return AclQuestion("User:writer", "*", operation, ResourceType.CLUSTER, "kafka-cluster")


def test_right_to_create_any_topic_is_named() -> None:
    rule = {"resource": {"type": "Cluster"}, "operations": ["Create"]}
    create = READ._replace(operation=AclOperation.CREATE)
    found = explain(ENFORCED, [a_user(rule)], create)
    assert found.sentence == (
        "The principal may do this: User kafka/writer states: "
        "Allow User:writer from * Create on Cluster kafka-cluster."
    )
    assert not explain(ENFORCED, [a_user(rule)], READ).allowed, "that right alone"
    assert not explain(ENFORCED, [a_user(on_topic("other", "Create"))], create).allowed


def test_topic_writer_may_write_idempotently_by_rule() -> None:
    asked = on_cluster(AclOperation.IDEMPOTENT_WRITE)
    rules = [on_topic("closed", "Write"), on_topic("closed", "Write", permission="Deny")]
    assert not explain(ENFORCED, [a_user(*rules)], asked).allowed
    found = explain(ENFORCED, [a_user(*rules, on_topic("orders", "Write"))], asked)
    assert found.allowed
    assert found.rule == "Allow User:writer from * Write on Topic orders"
    needed = explain(ENFORCED, [a_user(on_topic("orders", "Read"))], asked)
    assert needed.needed == "Allow User:writer from * IdempotentWrite on Cluster kafka-cluster"
    open_ = a_cluster(authorization={"mode": "Enforce", "allowEveryoneIfNoAcl": True})
    ruled = a_user({"resource": {"type": "Cluster"}, "operations": ["Alter"]}, name="other")
    assert explain(open_, [ruled], asked).allowed, "topics that no rule names are everybody's"


def test_users_of_another_cluster_do_not_count() -> None:
    body = a_body(on_topic("orders", "Read"))
    body["spec"]["clusterRef"]["name"] = "other"
    assert not explain(ENFORCED, [from_object(body, User)], READ).allowed


def test_disabled_user_may_do_nothing() -> None:
    body = a_body(on_topic("orders", "Read"))
    body["spec"]["disabled"] = True
    for mode in ("Enforce", "Audit", "Off"):
        cluster = a_cluster(authorization={"mode": mode, "superUsers": ["User:writer"]})
        found = explain(cluster, [from_object(body, User)], READ)
        assert not found.allowed
        assert found.sentence == (
            "The principal may not do this: User kafka/writer is disabled: brokers refuse its "
            "logins."
        )


class Answers:
    """A view that answers every question with this."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.asked: tuple[str, dict[str, str]] | None = None

    async def get(self, path: str, params: Any) -> Any:
        self.asked = (path, dict(params))
        return self._answer


async def test_committed_rights_are_queried_in_kafka_terms() -> None:
    told = {"mode": "Enforce", "allowed": True, "ground": "Rule", "rule": "Allow …"}
    view = Answers(told | {"statedBy": ["a client (CreateAcls)"]})
    found = await by_what_is_committed(view, ("kafka", "main"), READ)
    assert found.text == "The principal may do this: a client (CreateAcls) states: Allow …."
    params = {"principal": "User:writer", "host": "10.0.0.1", "operation": "Read"}
    path = "/v1/clusters/kafka/main/rights"
    assert view.asked == (path, params | {"resource": "Topic:orders"})
    with pytest.raises(Problem, match="releases differ"):
        await by_what_is_committed(Answers({}), ("kafka", "main"), READ)


async def test_objects_are_read_from_the_api_server() -> None:
    kube = ScriptedKube()
    kube.put(LOG_CLUSTERS, a_cluster_body(authorization={"mode": "Enforce"}))
    kube.put(USERS, a_body(on_topic("orders", "Read")))
    found = await by_declaration(kube, ("kafka", "main"), READ)
    assert found.explanation.stated_by == ("User kafka/writer",)
    assert found.text.endswith(BY_OBJECTS)
    with pytest.raises(NotFound):
        await by_declaration(kube, ("kafka", "nothing"), READ)


async def test_unreadable_user_is_named_without_blocking_others() -> None:
    kube = ScriptedKube()
    kube.put(LOG_CLUSTERS, a_cluster_body(authorization={"mode": "Enforce"}, users={}))
    kube.put(USERS, a_body(on_topic("orders", "Read")))
    tenants = [a_body(name=f"t{number}") for number in range(7)]
    for body in tenants:
        body["metadata"]["namespace"] = "shop"
        body["spec"] |= {"clusterRef": {"name": "main", "namespace": "kafka"}, "acls": 7}
        kube.put(USERS, body)
    another = a_body(name="another")
    another["spec"] |= {"clusterRef": {"name": "other"}, "acls": 7}
    kube.put(USERS, another)
    found = await by_declaration(kube, ("kafka", "main"), READ)
    assert found.explanation.allowed
    assert found.explanation.stated_by == ("User kafka/writer",)
    assert "User shop/t0, " in found.text
    assert found.text.endswith(" and 2 more. Correct them, and ask again.")


async def test_user_of_deleted_namespace_blocks_no_answer() -> None:
    kube = ScriptedKube()
    labelled = {"from": "Selector", "selector": {"matchLabels": {"team": "x"}}}
    kube.put(
        LOG_CLUSTERS,
        a_cluster_body(authorization={"mode": "Enforce"}, users={"allowedNamespaces": labelled}),
    )
    kube.put(USERS, a_body(on_topic("orders", "Read")))
    gone = a_body(name="gone")
    gone["metadata"]["namespace"] = "shop"
    gone["spec"]["clusterRef"] = {"name": "main", "namespace": "kafka"}
    kube.put(USERS, gone)
    assert (await by_declaration(kube, ("kafka", "main"), READ)).explanation.allowed


@pytest.mark.parametrize(
    "arguments",
    [
        ["main", "User:a", "Fly", "Topic:t"],
        ["main", "User:a", "Read", "Topic"],
        ["main", "User:a", "Read", "Cluster:t"],
        ["main", "User:a", "Read", "Planet:t"],
        ["main", "a", "Read", "Topic:t"],
        ["main", "User:a", "Read"],
    ],
)
def test_question_without_a_form_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["explain", *arguments]).exit_code == 2


def test_question_is_read_from_its_words() -> None:
    assert question("User:writer", "10.0.0.1", "Read", "Topic:orders") == READ
    on_cluster = question("User:a", "*", "Alter", "Cluster")
    assert on_cluster.name == "kafka-cluster"
    assert question("User:a", "*", "Alter", "Cluster:kafka-cluster") == on_cluster, "as it is shown"


async def test_every_operator_is_asked_in_its_format() -> None:
    """Without the name, which release 0.1 refuses."""
    asked: list[str] = []

    class View:
        async def get(self, path: str, params: dict[str, str]) -> Any:
            asked.append(params["resource"])
            return {"mode": "Enforce", "allowed": True, "ground": Ground.SUPER_USER.value}

    for text in ("Cluster", "Cluster:kafka-cluster", "Topic:orders"):
        words = question("User:a", "*", "Describe", text)
        await by_what_is_committed(View(), ("kafka", "main"), words)  # type: ignore[arg-type]
    assert asked == ["Cluster", "Cluster", "Topic:orders"]


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_answer_matches_the_sentence_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, output: str, read: Any
) -> None:
    found = explain(ENFORCED, [], READ)
    answered = AsyncMock(return_value=RightsFound(found, ("A note.",)))
    monkeypatch.setattr(acl_command, "_answered", answered)
    words = ["explain", "main", "User:writer", "Read", "Topic:orders", "-o", output]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    data = read(done.stdout)
    assert (data["allowed"], data["mode"], data["needed"]) == (False, "Enforce", found.needed)
    assert (data["sentence"], data["notes"]) == (found.sentence, ["A note."])
