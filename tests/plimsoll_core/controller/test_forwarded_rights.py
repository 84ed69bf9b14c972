"""Requests that brokers pass on for clients: decided again, by the rights and logins that are
committed then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_core.controller.test_security import OBJECT, Controller, a_rule, alter_cluster
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.records import (
    AclsAdded,
    ListenersConfigured,
)
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.controller.decide import Settings, decide
from plimsoll_core.errors import Code
from plimsoll_core.messages import security as m
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics, NewTopic, Refused
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    EnsureInternalTopic,
    TopicConfigChanges,
    TopicGrowth,
)
from plimsoll_core.security.acl import ANONYMOUS, Acl, AclFilter, AclOperation
from plimsoll_core.security.scram import PreviousKeys, login_mark
from plimsoll_core.security.state import Authorization, Mode

FORWARDED: list[Callable[[m.OnBehalf | None], Any]] = [
    lambda behalf: CreateTopics(topics=(NewTopic(name="orders"),), behalf=behalf),
    lambda behalf: DeleteTopics(names=("orders",), behalf=behalf),
    lambda behalf: AlterTopicConfigs(
        topics=(TopicConfigChanges(topic="orders", changes=()),), behalf=behalf
    ),
    lambda behalf: AddPartitions(
        topics=(TopicGrowth(topic="orders", partitions=3),), behalf=behalf
    ),
    lambda behalf: ElectLeaders(kind="Preferred", behalf=behalf),
    lambda behalf: AlterReassignments(targets=(), behalf=behalf),
    lambda behalf: m.CreateAcls(acls=(a_rule(),), behalf=behalf),
    lambda behalf: m.DeleteAcls(filters=(AclFilter(),), behalf=behalf),
    lambda behalf: m.AlterScramCredentials(upsertions=(a_credential(),), behalf=behalf),
]


def refused_for_rights(answer: Any) -> bool:
    codes = (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED)
    return isinstance(answer, Refused) and answer.code in codes


@pytest.mark.parametrize("forwarded", FORWARDED, ids=lambda one: type(one(None)).__name__)
def test_forwarded_request_is_decided_by_committed_rights(
    forwarded: Callable[[m.OnBehalf | None], Any],
) -> None:
    controller = Controller()
    alice, root = controller.logged_in(), controller.logged_in("root")
    assert not refused_for_rights(controller.ask(forwarded(alice)))  # nothing is enforced
    controller.enforce("User:root")
    before = controller.image
    assert refused_for_rights(controller.ask(forwarded(alice)))
    assert controller.image == before
    assert not refused_for_rights(controller.ask(forwarded(root)))


@pytest.mark.parametrize("forwarded", FORWARDED, ids=lambda one: type(one(None)).__name__)
def test_forwarded_request_without_user_is_refused_under_authorization(
    forwarded: Callable[[m.OnBehalf | None], Any],
) -> None:
    controller = Controller()
    for mode in (Mode.OFF, Mode.AUDIT):
        controller.ask(m.DeclareAuthorization(authorization=Authorization(mode=mode)))
        assert not refused_for_rights(controller.ask(forwarded(None)))
    controller.enforce("User:root", ANONYMOUS)
    before = controller.image
    assert refused_for_rights(controller.ask(forwarded(None)))
    assert controller.image == before


def test_request_decided_in_slices_keeps_its_client() -> None:
    controller = Controller()
    root = controller.logged_in("root")
    controller.enforce("User:root")
    targets = tuple(PartitionTarget(topic="orders", index=index, replicas=()) for index in (0, 1))
    asked = AlterReassignments(targets=targets, behalf=root)
    slices = Settings(slice_partitions_max=1)
    again = decide(controller.image, controller.soft, asked, 1_000, slices).again
    assert isinstance(again, AlterReassignments)
    assert (again.targets, again.behalf) == (targets[1:], root)
    assert not refused_for_rights(controller.ask(again))


def test_brokers_own_request_needs_no_rights() -> None:
    controller = Controller()
    controller.enforce()
    asked = controller.ask(EnsureInternalTopic(name=GROUP_OFFSETS))
    assert not refused_for_rights(asked)


@pytest.mark.parametrize("forwarded", FORWARDED, ids=lambda one: type(one(None)).__name__)
def test_login_is_checked_even_without_authorization(
    forwarded: Callable[[m.OnBehalf | None], Any],
) -> None:
    controller = Controller()
    asked = forwarded(controller.logged_in())
    assert not refused_for_rights(controller.ask(asked))
    controller.set_password(a_credential(password="other"))
    before = controller.image
    assert refused_for_rights(controller.ask(asked))
    assert controller.image == before


@pytest.mark.parametrize("forwarded", FORWARDED, ids=lambda one: type(one(None)).__name__)
def test_forwarded_request_of_a_disconnected_user_is_refused(
    forwarded: Callable[[m.OnBehalf | None], Any],
) -> None:
    controller = Controller()
    controller.enforce("User:alice")
    old, new = a_credential(password="old"), a_credential(password="new")
    behalf = m.OnBehalf(principal="User:alice", host="10.0.0.1", login=login_mark(old.stored_key))
    changed = forwarded(behalf)
    controller.set_password(old)
    assert not refused_for_rights(controller.ask(changed))
    controller.set_password(new)
    before = controller.image
    assert refused_for_rights(controller.ask(changed))
    again = m.OnBehalf(principal="User:alice", host="10.0.0.1", login=login_mark(new.stored_key))
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", disabled=True))
    assert refused_for_rights(controller.ask(forwarded(again)))
    by_no_key = m.OnBehalf(principal="User:alice", host="10.0.0.1")
    assert refused_for_rights(controller.ask(forwarded(by_no_key)))
    controller.ask(m.UserObjectGone(object=OBJECT))
    assert refused_for_rights(controller.ask(forwarded(again)))
    assert before.topics == controller.image.topics


def test_login_before_rotation_lasts_until_brokers_end_it() -> None:
    controller = Controller()
    controller.enforce("User:alice")
    old, new = a_credential(password="old"), a_credential(password="new")
    keys = PreviousKeys(stored_key=old.stored_key, server_key=old.server_key, until_ms=1)
    rotated = replace(new, previous=keys)
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", credentials=(rotated,)))
    behalf = m.OnBehalf(principal="User:alice", host="10.0.0.1", login=login_mark(old.stored_key))
    assert not refused_for_rights(controller.ask(m.CreateAcls(acls=(a_rule(),), behalf=behalf)))


@pytest.mark.parametrize("forwarded", FORWARDED, ids=lambda one: type(one(None)).__name__)
def test_forwarded_request_without_login_mark_is_refused(
    forwarded: Callable[[m.OnBehalf | None], Any],
) -> None:
    controller = Controller()
    controller.logged_in("root")
    controller.enforce("User:root", ANONYMOUS)
    root, nobody = (m.OnBehalf(principal=one, host="h") for one in ("User:root", ANONYMOUS))
    assert refused_for_rights(controller.ask(forwarded(root)))
    assert not refused_for_rights(controller.ask(forwarded(nobody)))
    secured = Listener(name="secured", port=9094, authentication=("ScramSha512",))
    listeners = (secured, Listener(name="open", port=9092))
    configured = ListenersConfigured(cause="t", listeners=listeners)
    controller.image = apply(controller.image, configured)
    assert not refused_for_rights(controller.ask(forwarded(nobody)))
    configured = ListenersConfigured(cause="t", listeners=listeners[:1])
    controller.image = apply(controller.image, configured)
    assert refused_for_rights(controller.ask(forwarded(nobody)))


@pytest.mark.parametrize(
    ("forwarded", "rule"),
    [
        (FORWARDED[0], a_rule(operation=AclOperation.CREATE)),
        (FORWARDED[1], a_rule(operation=AclOperation.DELETE)),
        (FORWARDED[2], a_rule(operation=AclOperation.ALTER_CONFIGS)),
        (FORWARDED[3], a_rule(operation=AclOperation.ALTER)),
        *((one, alter_cluster()) for one in FORWARDED[4:]),
    ],
)
def test_forwarded_request_needs_the_right_of_its_api(
    forwarded: Callable[[m.OnBehalf | None], Any], rule: Acl
) -> None:
    controller = Controller()
    controller.enforce()
    controller.image = apply(controller.image, AclsAdded(cause="t", acls=(rule,)))
    assert not refused_for_rights(controller.ask(forwarded(controller.logged_in())))
