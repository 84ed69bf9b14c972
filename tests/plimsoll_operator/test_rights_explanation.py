"""What decides about a principal by what is committed: in words, with whose rule it is."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from plimsoll_core.security.acl import Acl, AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion, index_of
from plimsoll_core.security.state import (
    BY_CLIENT,
    Authorization,
    DeclaredUser,
    Mode,
    SecurityState,
    UserObject,
)
from plimsoll_operator.rights_explanation import explanation

READ = AclQuestion("User:writer", "*", AclOperation.READ, ResourceType.TOPIC, "orders")
RULE = Acl(
    resource=ResourceType.TOPIC,
    name="orders",
    principal="User:writer",
    operation=AclOperation.READ,
)
ROW = DeclaredUser(
    object=UserObject(namespace="kafka", name="writer", uid="u1"), user_name="writer"
)
STATES = "Allow User:writer from * Read on Topic orders."


def committed(*owners: str, user: DeclaredUser = ROW, mode: Mode = Mode.ENFORCE) -> SecurityState:
    return SecurityState(
        authorization=Authorization(mode=mode),
        users=Map({user.user_name: user}),
        acls=Map({RULE: owners}) if owners else Map(),
        index=index_of([RULE] if owners else []),
    )


def test_clients_rule_is_shown_as_such() -> None:
    found = explanation(committed(BY_CLIENT), READ)
    assert found.sentence == f"The principal may do this: a client (CreateAcls) states: {STATES}"


def test_rule_of_client_and_object_shows_both() -> None:
    found = explanation(committed(BY_CLIENT, "u1"), READ)
    assert (
        found.sentence
        == f"The principal may do this: a client (CreateAcls) and User kafka/writer state: {STATES}"
    )


def test_rule_of_deleted_user_shows_its_grace() -> None:
    found = explanation(committed("u1", user=replace(ROW, gone_since_ms=60_000)), READ)
    assert found.sentence == (
        "The principal may do this: User kafka/writer (its object was deleted at "
        "1970-01-01T00:01:00Z, its rights end"
        f" with its grace) states: {STATES}"
    )


def test_disabled_user_may_not_in_any_mode() -> None:
    for mode in Mode:
        found = explanation(committed("u1", user=replace(ROW, disabled=True), mode=mode), READ)
        assert (found.allowed, found.needed) == (False, None)
        assert found.sentence == (
            "The principal may not do this: User kafka/writer is disabled: brokers refuse its "
            "logins."
        )


def test_without_a_rule_the_smallest_one_is_named() -> None:
    found = explanation(committed(), READ)
    assert found.sentence == (
        "The principal may not do this: no rule names the resource. This rule would allow it: "
        f"{STATES}"
    )
