"""Every API is refused to a client without the right, told with Kafka's code, and asks its handler
for nothing that the client may not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.described import ORDERS, an_image
from tests.plimsoll_broker.security.guard_cases import (
    CASES,
    GROUP,
    OF_MINE,
    PARTITION,
    TOPIC,
    TRANSACTION,
    Op,
    Type,
    of_topic,
)
from tests.plimsoll_broker.security.secured import Secured, a_rule, codes_in, denying

from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.security.gate import GUARDS, IN_HANDLER, guarded
from plimsoll_broker.handlers.security.guards import Asking, find_coordinator
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.connection_state import CloseConnection, ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.security.acl import Pattern
from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import decode_request, decode_response, encode_request, encode_response


class Reached(Exception):
    """The handler was asked, for `value`."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__()
        self.value = decode_request(context.api_key, context.api_version, context.body)
        self.behalf = None if context.rights is None else context.rights.behalf


class AskedByAlice:
    """Requests of one client, past the guard or not."""

    def __init__(self, secured: Secured, principal: str = "User:alice") -> None:
        self.secured = secured
        self.connection = ConnectionState()
        self.connection.logged_in_as(principal)
        self.connection.host = "10.0.0.1"

    def __call__(
        self, key: ApiKey, values: dict[str, Any], version: int | None = None, handler: Any = None
    ) -> Any:
        version = SUPPORTED[key].last if version is None else version
        body = memoryview(bytearray(encode_request(key, version, values)))
        context = RequestContext(key, version, 1, body, self.connection)

        def reach(context: RequestContext) -> bytes:
            raise Reached(context)

        table = guarded({key: handler or reach}, self.secured.authority, Aside())
        return decode_response(key, version, table[key](context))


IDS = [f"{key.name}-{number}" for number, (key, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("key", "values", "code", "rights"), CASES, ids=IDS)
async def test_request_without_right_is_refused_with_kafka_code(
    key: ApiKey, values: dict[str, Any], code: Code, rights: list[dict[str, Any]]
) -> None:
    assert int(code) in codes_in(AskedByAlice(Secured())(key, values))


@pytest.mark.parametrize(("key", "values", "code", "rights"), CASES, ids=IDS)
async def test_request_with_any_sufficient_right_is_forwarded(
    key: ApiKey, values: dict[str, Any], code: Code, rights: list[dict[str, Any]]
) -> None:
    for right in rights:
        with pytest.raises(Reached) as reached:
            AskedByAlice(Secured(Mode.ENFORCE, a_rule(**right)))(key, values)
        assert reached.value.behalf.principal == "User:alice"


@pytest.mark.parametrize(("key", "values", "code", "rights"), CASES, ids=IDS)
async def test_denied_right_is_refused_although_it_is_allowed(
    key: ApiKey, values: dict[str, Any], code: Code, rights: list[dict[str, Any]]
) -> None:
    denied = [denying(**right) for right in rights]
    allowed = [a_rule(**right) for right in rights]
    secured = Secured(Mode.ENFORCE, *denied, *allowed)
    assert int(code) in codes_in(AskedByAlice(secured)(key, values))


@pytest.mark.parametrize(("key", "values", "code", "rights"), CASES, ids=IDS)
async def test_audit_mode_passes_and_counts_would_be_refusals(
    key: ApiKey, values: dict[str, Any], code: Code, rights: list[dict[str, Any]]
) -> None:
    secured = Secured(Mode.AUDIT)
    counted: list[Any] = []
    secured.authority.audit.note = counted.append  # type: ignore[method-assign]
    with pytest.raises(Reached):
        AskedByAlice(secured)(key, values)
    assert {event.decision for event in counted} == {"WouldDeny"}


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.AUDIT])
async def test_topic_creator_without_describe_configs_gets_none(
    mode: Mode,
) -> None:
    (values,) = (case[1] for case in CASES if case[0] is ApiKey.CREATE_TOPICS)
    told = {"name": "orders", "error_code": 0, "error_message": None, "topic_id": ORDERS}
    config = {"name": "retention.ms", "value": "1", "read_only": False, "config_source": 1}
    configs = [{**config, "is_sensitive": False}]
    counts = {"num_partitions": 1, "replication_factor": 1, "topic_config_error_code": 0}
    answer = {"throttle_time": 0, "topics": [{**told, **counts, "configs": configs}]}
    version = SUPPORTED[ApiKey.CREATE_TOPICS].last

    def made(context: RequestContext) -> bytes:
        return encode_response(context.api_key, version, answer)

    secured = Secured(mode, a_rule(operation=Op.CREATE))
    counted: list[Any] = []
    secured.authority.audit.note = counted.append  # type: ignore[method-assign]
    (topic,) = AskedByAlice(secured)(ApiKey.CREATE_TOPICS, values, handler=made).topics
    assert counted == []
    assert (topic.configs is None) == (mode is Mode.ENFORCE)
    hidden = Code.TOPIC_AUTHORIZATION_FAILED if mode is Mode.ENFORCE else Code.NONE
    assert topic.topic_config_error_code == hidden


@pytest.mark.parametrize(("key", "values", "code", "rights"), CASES, ids=IDS)
async def test_authorization_that_is_off_asks_for_no_rights(
    key: ApiKey, values: dict[str, Any], code: Code, rights: list[dict[str, Any]]
) -> None:
    with pytest.raises(Reached) as reached:
        AskedByAlice(Secured(Mode.OFF))(key, values)
    assert reached.value.behalf is None


async def test_offsets_are_added_by_two_rights() -> None:
    asked = {**OF_MINE, "group_id": "mine"}
    write = a_rule(Op.WRITE, "mine", Type.TRANSACTIONAL_ID)
    read = a_rule(Op.READ, "mine", Type.GROUP)
    for rules, code in (([read], TRANSACTION), ([write], GROUP)):
        alice = AskedByAlice(Secured(Mode.ENFORCE, *rules))
        assert alice(ApiKey.ADD_OFFSETS_TO_TXN, asked).error_code == code
    with pytest.raises(Reached):
        AskedByAlice(Secured(Mode.ENFORCE, write, read))(ApiKey.ADD_OFFSETS_TO_TXN, asked)


async def test_every_guarded_api_is_tested_here() -> None:
    assert {int(key) for key in GUARDS} | {int(ApiKey.API_VERSIONS)} == set(REQUIREMENTS)
    tried = {key for key, *_ in CASES} | {ApiKey.METADATA, ApiKey.ADD_OFFSETS_TO_TXN}
    assert {key for key, guard in GUARDS.items() if guard is not IN_HANDLER} == tried
    free = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
    free |= {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT}
    for key, guard in GUARDS.items():
        if guard is IN_HANDLER and key not in free:
            assert REQUIREMENTS[int(key)], key


async def test_api_without_a_requirement_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {key: row for key, row in REQUIREMENTS.items() if key != ApiKey.DESCRIBE_LOG_DIRS}
    monkeypatch.setattr("plimsoll_broker.handlers.security.gate.REQUIREMENTS", without)
    with pytest.raises(CloseConnection, match="no-requirement"):
        AskedByAlice(Secured())(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})


async def test_unauthorized_request_for_missing_topic_reveals_nothing() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE, "new"))
    secured.authority.makes_topics = False
    with pytest.raises(Reached):
        AskedByAlice(secured)(ApiKey.METADATA, metadata_values("new", makes=True))


# --- authorized operations (KIP-430) --------------------------------------------------------------


ON_TOPIC, ON_CLUSTER = 3576, 8096
"""Every bit, as Kafka tells it."""


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.AUDIT])
async def test_clients_have_all_operations_without_authorization(mode: Mode) -> None:
    secured = Secured(mode)
    counted: list[Any] = []
    secured.authority.audit.note = counted.append  # type: ignore[method-assign]
    asked = AskedByAlice(secured)
    told = {"include_cluster_authorized_operations": True}
    values = metadata_values("orders", **told, include_topic_authorized_operations=True)
    answer = asked(ApiKey.METADATA, values, 8, secured.handlers[ApiKey.METADATA])
    assert answer.cluster_authorized_operations == ON_CLUSTER
    assert answer.topics[0].topic_authorized_operations == ON_TOPIC
    values = {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    answer = asked(key, values, None, secured.handlers[key])
    assert answer.topics[0].topic_authorized_operations == ON_TOPIC
    key = ApiKey.DESCRIBE_CLUSTER
    values = {**told, "endpoint_type": 1, "include_fenced_brokers": False}
    answer = asked(key, values, None, secured.handlers[key])
    assert answer.cluster_authorized_operations == ON_CLUSTER
    # To ask for the topic is an attempt; to ask what it may is none.
    assert {event.operation for event in counted} <= {"Describe"}


async def test_remembered_answer_tells_each_client_its_own_operations() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.READ), a_rule(Op.WRITE, principal="User:bob"))
    secured.allow(a_rule(Op.DESCRIBE, "*", principal="User:carol"))
    values = metadata_values("orders", include_topic_authorized_operations=True)
    handler = secured.handlers[ApiKey.METADATA]
    told = {}
    for user in ("alice", "bob", "carol", "alice"):
        answer = AskedByAlice(secured, f"User:{user}")(ApiKey.METADATA, values, None, handler)
        told[user] = answer.topics[0].topic_authorized_operations
    assert told == {"alice": 264, "bob": 272, "carol": 256}


# --- in part -------------------------------------------------------------------------------------


async def test_topics_of_a_request_are_refused_individually() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE, "or", pattern=Pattern.PREFIXED))
    asked = AskedByAlice(secured)
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [of_topic("orders", PARTITION), of_topic("payments", PARTITION)],
        "timeout": 0,
    }
    with pytest.raises(Reached) as reached:
        asked(ApiKey.LIST_OFFSETS, values)
    assert [topic.name for topic in reached.value.value.topics] == ["orders"]


async def test_remembered_decision_ends_with_its_rule() -> None:
    rule = a_rule(Op.DESCRIBE)
    secured = Secured(Mode.ENFORCE, rule)
    asked = AskedByAlice(secured)
    values = {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}
    with pytest.raises(Reached):
        asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values)
    secured.forbid(rule)
    assert TOPIC in codes_in(asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values))
    secured.allow(rule)
    with pytest.raises(Reached):
        asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values)


# --- Metadata ------------------------------------------------------------------------------------


def metadata_values(*names: str | None, makes: bool = False, **more: Any) -> dict[str, Any]:
    topics = [{"name": name, "topic_id": None} for name in names] if names else None
    return {
        "topics": topics,
        "allow_auto_topic_creation": makes,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
        **more,
    }


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.METADATA].last + 1))
async def test_metadata_of_all_topics_lists_describable_ones(version: int) -> None:
    secured = Secured(
        Mode.ENFORCE, a_rule(Op.READ), a_rule(Op.READ, "payments", principal="User:bob")
    )
    handler = secured.handlers[ApiKey.METADATA]
    values = metadata_values() if version else {"topics": []}

    def names(principal: str) -> list[str]:
        answer = AskedByAlice(secured, principal)(ApiKey.METADATA, values, version, handler)
        return [topic.name for topic in answer.topics]

    # One after another: no answer that was remembered is another one's.
    for _ in range(2):
        assert names("User:alice") == ["orders"]
        assert names("User:bob") == ["payments"]
        assert names("User:carol") == []


async def test_metadata_by_name_refuses_undescribable_topics_alike() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE))
    handler = secured.handlers[ApiKey.METADATA]
    values = metadata_values("orders", "payments", "nothing")
    answer = AskedByAlice(secured)(ApiKey.METADATA, values, 12, handler)
    told = {topic.name: (int(topic.error_code), topic.topic_id) for topic in answer.topics}
    assert told == {
        "orders": (0, ORDERS),
        "payments": (TOPIC, None),
        "nothing": (TOPIC, None),
    }


@pytest.mark.parametrize("name", [None, ""])
async def test_metadata_by_id_is_refused_without_a_name(name: str | None) -> None:
    secured = Secured()
    topics = [{"name": name, "topic_id": ORDERS}, {"name": name, "topic_id": UUID(int=9)}]
    handler = secured.handlers[ApiKey.METADATA]
    answer = AskedByAlice(secured)(ApiKey.METADATA, metadata_values(topics=topics), 12, handler)
    told = {topic.topic_id: (topic.name, int(topic.error_code)) for topic in answer.topics}
    assert told == {
        ORDERS: (None, TOPIC),
        UUID(int=9): (None, Code.UNKNOWN_TOPIC_ID),
    }


async def test_metadata_that_creates_topic_requires_create() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE, "new"))
    values = metadata_values("new", makes=True)
    handler = secured.handlers[ApiKey.METADATA]
    assert TOPIC in codes_in(AskedByAlice(secured)(ApiKey.METADATA, values, None, handler))
    secured.allow(a_rule(Op.CREATE, "new"))
    with pytest.raises(Reached):
        AskedByAlice(secured)(ApiKey.METADATA, values)


async def test_metadata_follows_topics_that_come() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE, "*"), denying(Op.DESCRIBE, "payments"))
    handler = secured.handlers[ApiKey.METADATA]
    asked = AskedByAlice(secured)
    answer = asked(ApiKey.METADATA, metadata_values(), None, handler)
    assert [topic.name for topic in answer.topics] == ["orders"]
    smaller = replace(
        an_image(topics=("payments",)), metadata_version=3, security=secured.watch.image.security
    )
    old = secured.watch.image
    secured.watch.update(old, smaller)
    secured.authority.update(old, smaller)
    answer = asked(ApiKey.METADATA, metadata_values(), None, handler)
    assert [topic.name for topic in answer.topics] == []


async def test_change_is_visible_in_the_next_metadata() -> None:
    """Although what was asked and what was answered are remembered."""
    rule = a_rule(Op.DESCRIBE, "payments")
    secured = Secured(Mode.ENFORCE, a_rule(Op.DESCRIBE), rule)
    handler = secured.handlers[ApiKey.METADATA]
    asked = AskedByAlice(secured)

    ids = secured.watch.image.topic_ids

    def put(image: ClusterImage) -> None:
        old = secured.watch.image
        secured.watch.update(old, image)
        secured.authority.update(old, image)

    def told() -> dict[str, list[int]]:
        """Leaders, by topic."""
        answers = [asked(ApiKey.METADATA, metadata_values(), None, handler) for _ in range(2)]
        assert answers[0] == answers[1]
        return {t.name: [int(p.leader_id) for p in t.partitions] for t in answers[0].topics}

    assert told() == {"orders": [0, 1, 0], "payments": [0, -1]}
    secured.forbid(rule)
    assert told() == {"orders": [0, 1, 0]}
    secured.allow(rule)
    assert told() == {"orders": [0, 1, 0], "payments": [0, -1]}
    image, key = secured.watch.image, PartitionKey(ORDERS, 0)
    moved = replace(image.partitions[key], leader=BrokerId(1))
    put(replace(image, partitions=image.partitions.set(key, moved)))
    assert told() == {"orders": [1, 1, 0], "payments": [0, -1]}
    image = secured.watch.image
    put(replace(image, topics=image.topics.delete(ORDERS), topic_ids=ids.delete("orders")))
    assert told() == {"payments": [0, -1]}
    secured.change(r.AclsAdded(cause="t", acls=(denying(Op.DESCRIBE, "payments"),)))
    assert told() == {}


async def test_many_refused_coordinators_cost_few_comparisons() -> None:
    compared = 0

    class Key(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    version = SUPPORTED[ApiKey.FIND_COORDINATOR].last
    keys = tuple(Key(number) for number in range(500))
    secured, connection = Secured(), ConnectionState()
    context = RequestContext(ApiKey.FIND_COORDINATOR, version, 1, memoryview(b""), connection)
    request = SimpleNamespace(key_type=0, coordinator_keys=(*keys, keys[0]))
    rights = Rights(secured.authority, connection)
    verdict = find_coordinator(Asking(context, request, rights))
    told = decode_response(ApiKey.FIND_COORDINATOR, version, verdict.told)
    codes = {one.error_code for one in told.coordinators}
    assert (len(told.coordinators), codes) == (501, {Code.GROUP_AUTHORIZATION_FAILED})
    assert compared < 10 * len(keys)
