"""Rules of any length and number: what was added can be removed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.plimsoll_core.controller.test_security import OBJECT, Controller, a_rule

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import AclsAdded
from plimsoll_core.controller.decide import Settings, decide
from plimsoll_core.controller.security.acl_changes import CHANGES_MAX
from plimsoll_core.controller.security.security_share import ACLS_MAX
from plimsoll_core.errors import Reason
from plimsoll_core.messages import security as m
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.security.acl import Acl, AclFilter, ResourceType


def test_rules_of_any_length_fit_into_batches() -> None:
    controller = Controller()
    records: list[Any] = []
    long = tuple(
        a_rule(f"{number:04}".rjust(1020, "\x01"), resource=ResourceType.GROUP)
        for number in range(CHANGES_MAX)
    )
    for request in (
        m.CreateAcls(acls=long),
        m.DeclareUser(object=OBJECT, user_name="alice", acls=long),
        m.DeclareUser(object=OBJECT, user_name="alice", disabled=True),
        m.DeleteAcls(filters=(AclFilter(),)),
    ):
        decision = decide(controller.image, controller.soft, request, 1_000, Settings())
        assert not isinstance(decision.answer, Refused)
        controller.image = decision.image
        records += decision.records
    assert not controller.image.security.acls
    assert max(len(msgspec.json.encode(record)) for record in records) < 900_000


@pytest.mark.parametrize(
    "rule",
    [
        a_rule("\N{BOAR}" * 63),
        a_rule("\N{BOAR}" * 257, resource=ResourceType.GROUP),
        a_rule(principal="User:" + "\N{BOAR}" * 256),
        a_rule(host="1" * 65),
        a_rule("\ud800"),
    ],
    ids=["topic", "group", "principal", "host", "no text"],
)
def test_rule_longer_than_a_name_is_refused(rule: Acl) -> None:
    controller = Controller()
    assert controller.ask(m.CreateAcls(acls=(rule,))).reason == Reason.InvalidRequest.name


def test_rule_replacement_needs_no_room_for_both() -> None:
    controller = Controller()
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", acls=(a_rule("before"),)))
    many = tuple(a_rule(f"t-{number}") for number in range(ACLS_MAX - 1))
    controller.image = apply(controller.image, AclsAdded(cause="t", acls=many))
    asked = m.DeclareUser(object=OBJECT, user_name="alice", acls=(a_rule("after"),))
    assert controller.ask(asked) == Done()
    assert a_rule("before") not in controller.image.security.acls
