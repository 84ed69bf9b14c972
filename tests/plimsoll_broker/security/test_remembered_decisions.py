"""How much a broker remembers of decisions about one connection, whatever that asks about."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.plimsoll_broker.security.secured import Secured, a_rule, denying

from plimsoll_broker.security.authority import NAME_MAX, OTHERS_MAX, Rights
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.security.acl import OPERATION_BITS, AclOperation, Pattern, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.state import Mode, SecurityState

Ask = Callable[[Rights, str], bool]
OF_GROUP: Ask = lambda rights, name: rights.group(AclOperation.READ, name)  # noqa: E731
OF_TOPIC: Ask = lambda rights, name: rights.topic(AclOperation.READ, name)  # noqa: E731


def rights_of_alice(secured: Secured) -> Rights:
    connection = ConnectionState()
    connection.principal, connection.host = "User:alice", "10.0.0.1"
    return Rights(secured.authority, connection)


@pytest.mark.parametrize("ask", [OF_GROUP, OF_TOPIC], ids=["group", "topic"])
@pytest.mark.parametrize("allowed", [False, True])
async def test_missing_names_fill_only_a_small_table(ask: Ask, *, allowed: bool) -> None:
    """A user without any right had a broker keep 37 MB for each connection in a few seconds."""
    kinds = [a_rule(AclOperation.READ).resource, a_rule(AclOperation.READ).resource.GROUP]
    rules = [
        a_rule(AclOperation.READ, "made-up-", resource=kind, pattern=Pattern.PREFIXED)
        for kind in kinds
    ]
    rights = rights_of_alice(Secured(Mode.ENFORCE, *rules))
    prefix = "made-up-" if allowed else "of-others-"
    for number in range(3 * OTHERS_MAX):
        assert ask(rights, f"{prefix}{number}") is allowed
        assert len(rights._known.others) <= OTHERS_MAX
    before = dict(rights._known.others)
    assert ask(rights, prefix + "x" * NAME_MAX) is allowed
    assert rights._known.others == before
    assert not rights._known.topics


async def test_decision_about_existing_topic_is_not_evicted() -> None:
    rights = rights_of_alice(Secured(Mode.ENFORCE, a_rule(AclOperation.READ)))
    assert rights.topic(AclOperation.READ, "orders")
    for number in range(2 * OTHERS_MAX):
        rights.group(AclOperation.READ, str(number))
    assert list(rights._known.topics) == ["orders"]


async def test_denied_topic_is_remembered_alike_whether_it_exists() -> None:
    rights = rights_of_alice(Secured())
    for name in ("orders", "nothing"):
        assert not rights.topic(AclOperation.READ, name)
    assert not rights._known.topics
    assert [name for _, name in rights._known.others] == ["orders", "nothing"]


@pytest.mark.parametrize("name", ["orders", "nothing"])
async def test_name_is_decided_once_for_all_operations(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata with the client's operations went through the rules nine times for each name."""
    rules = (a_rule(AclOperation.READ, name), denying(AclOperation.DESCRIBE_CONFIGS, name))
    secured, decided = Secured(Mode.ENFORCE, *rules), 0
    operations = SecurityState.operations

    def counted(self: SecurityState, asked: AclQuestion) -> int:
        nonlocal decided
        decided += 1
        return operations(self, asked)

    monkeypatch.setattr(SecurityState, "operations", counted)
    rights = rights_of_alice(secured)
    told = [one for one in AclOperation if rights.topic(one, name)]
    assert told == [AclOperation.READ, AclOperation.DESCRIBE]
    assert rights.operations(ResourceType.TOPIC, name) == sum(map(OPERATION_BITS.get, told))
    assert decided == 1
    secured.allow(a_rule(AclOperation.WRITE, name))
    assert rights.topic(AclOperation.WRITE, name)
    assert decided == 2
