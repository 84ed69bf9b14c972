"""A request that names thousands is compared with the rules in a thread, and so is one for all
topics where there are many: the event loop asks for no right of them, and reads and writes nothing
long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.plimsoll_broker.security.guard_cases import Op
from tests.plimsoll_broker.security.secured import Secured, a_rule

from plimsoll_broker.handlers.long_work import BYTES_AT_ONCE, NAMES_AT_ONCE, Aside
from plimsoll_broker.handlers.security import gate, guards
from plimsoll_broker.handlers.security.gate import GUARDS, IN_HANDLER, guarded
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import OPERATION_BITS, Acl, Pattern, ResourceType
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import decode_request, decode_response, encode_request, encode_response

MANY = 3_000
MINE, OTHERS = "mine-{:04}", "others-{:04}"
NAMES = [(MINE if number % 2 else OTHERS).format(number) for number in range(MANY)]
NONE = {"error_code": 0}
FLAGS = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def _topics(**more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in NAMES]


def _configs() -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": name} for name in NAMES]


LONG: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": _topics(topic_id=None), **FLAGS},
    ApiKey.LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": _topics(partitions=[]),
        "timeout": 0,
    },
    ApiKey.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": NAMES},
    ApiKey.CREATE_TOPICS: {
        "topics": _topics(num_partitions=1, replication_factor=1, assignments=[], configs=[]),
        "timeout": 1_000,
        "validate_only": True,
    },
    ApiKey.DELETE_TOPICS: {"topics": _topics(topic_id=None), "timeout": 1_000},
    ApiKey.DELETE_RECORDS: {"topics": _topics(partitions=[]), "timeout": 1_000},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": name, "partitions": []} for name in NAMES],
    },
    ApiKey.DESCRIBE_PRODUCERS: {"topics": _topics(partition_indexes=[])},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": NAMES},
    ApiKey.CREATE_PARTITIONS: {
        "topics": _topics(count=3, assignments=None),
        "timeout": 1_000,
        "validate_only": True,
    },
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [{**one, "configuration_keys": None} for one in _configs()],
        "include_synonyms": False,
        "include_documentation": False,
    },
    ApiKey.ALTER_CONFIGS: {
        "resources": [{**one, "configs": []} for one in _configs()],
        "validate_only": True,
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{**one, "configs": []} for one in _configs()],
        "validate_only": True,
    },
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
        "topics": _topics(),
        "response_partition_limit": 10,
        "cursor": None,
    },
}
"""Each API of which one request may name many things that rules are compared with."""

MINE_ALL = [
    a_rule(Op.ALL, "mine-", resource=kind, pattern=Pattern.PREFIXED)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """What the event loop does of what may take long."""
    seen: Counter[str] = Counter()
    loop = threading.get_ident()

    def noted(what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            seen[what] += threading.get_ident() == loop
            seen[f"{what} anywhere"] += 1
            return real(*arguments)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(Rights, "_decide", noted("decided", Rights._decide))
        patch.setattr(RequestContext, "decoded", noted("read", RequestContext.decoded))
        patch.setattr(guards, "encode_request", noted("written", encode_request))
        patch.setattr(guards, "decode_response", noted("read", decode_response))
        patch.setattr(guards, "encode_response", noted("written", encode_response))
        yield seen


async def asked(
    secured: Secured, key: ApiKey, values: dict[str, Any], version: int | None = None
) -> tuple[Any, list[Any]]:
    """The answer, and the request as the handler had it.  The handler answers with nothing."""
    connection = ConnectionState()
    connection.principal, connection.host = "User:alice", "10.0.0.1"
    version = SUPPORTED[key].last if version is None else version
    reached: list[Any] = []

    def empty(context: RequestContext) -> bytes:
        reached.append(bytes(context.body))
        return encode_response(key, version, EMPTY[key])

    body = memoryview(bytearray(encode_request(key, version, values)))
    context = RequestContext(key, version, 1, body, connection)
    result = guarded({key: empty}, secured.authority, Aside())[key](context)
    reply = await result if isinstance(result, Awaitable) else result
    return decode_response(key, version, reply), [decode_request(key, version, r) for r in reached]


EMPTY: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"brokers": [], "cluster_id": "c", "controller_id": 0, "topics": [], **NONE},
    ApiKey.LIST_OFFSETS: {"topics": []},
    ApiKey.FIND_COORDINATOR: {"coordinators": []},
    ApiKey.CREATE_TOPICS: {"topics": []},
    ApiKey.DELETE_TOPICS: {"responses": []},
    ApiKey.DELETE_RECORDS: {"topics": []},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": []},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": []},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transaction_states": []},
    ApiKey.CREATE_PARTITIONS: {"results": []},
    ApiKey.DESCRIBE_CONFIGS: {"results": []},
    ApiKey.ALTER_CONFIGS: {"responses": []},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"responses": []},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "next_cursor": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("key", LONG, ids=[key.name for key in LONG])
async def test_request_naming_thousands_is_authorized_in_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(Mode.ENFORCE, *MINE_ALL)
    with watched(monkeypatch) as seen:
        answer, reached = await asked(secured, key, LONG[key])
    assert (seen["decided"], seen["read"], seen["written"]) == (0, 0, 0), "by the loop"
    assert seen["decided anywhere"] >= MANY
    told, passed = str(answer), str(reached[0])
    assert told.count("others-") == passed.count("mine-") == MANY // 2
    assert "mine-" not in told
    assert "others-" not in passed


@pytest.mark.slow
@pytest.mark.parametrize("key", LONG, ids=[key.name for key in LONG])
async def test_fully_refused_request_is_answered_in_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(monkeypatch) as seen:
        answer, reached = await asked(Secured(), key, LONG[key])
    assert (seen["decided"], seen["read"], seen["written"]) == (0, 0, 0), "by the loop"
    assert str(answer).count("mine-") == str(answer).count("others-") == MANY // 2
    assert "mine-" not in str(reached)


async def test_every_guard_over_a_list_is_tested_here() -> None:
    """The others ask for one right, whatever the request's length."""
    listed = {key for key, guard in GUARDS.items() if guard is not IN_HANDLER} - set(LONG)
    assert listed == {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.WRITE_TXN_MARKERS,
        # One topic without a right refuses the whole request: tested below.
        ApiKey.ADD_PARTITIONS_TO_TXN,
    }


def _adding() -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "mine-0001",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": _topics(partitions=[0]),
    }


@pytest.mark.parametrize("rules", [MINE_ALL, []], ids=["half", "none"])
async def test_topics_of_long_transaction_are_authorized_in_thread(
    rules: list[Acl], monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(Mode.ENFORCE, *rules)
    with watched(monkeypatch) as seen:
        answer, reached = await asked(secured, ApiKey.ADD_PARTITIONS_TO_TXN, _adding(), version=3)
    assert (seen["decided"], seen["read"], seen["written"]) == (0, 0, 0), "by the loop"
    assert len(answer.results_by_topic_v3_and_below) == MANY
    assert not reached


def with_topics(secured: Secured, count: int) -> None:
    """So many topics, of which every second is alice's."""
    old = secured.watch.image
    ids = {(MINE if n % 2 else OTHERS).format(n): UUID(int=1000 + n) for n in range(count)}
    a_topic = next(iter(old.topics.values()))
    topics = {i: replace(a_topic, id=i, name=name) for name, i in ids.items()}
    new = replace(old, topics=Map(topics), topic_ids=Map(ids), partitions=Map())
    secured.watch.update(old, new)
    secured.authority.update(old, new)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS])
async def test_request_for_all_topics_is_authorized_in_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(Mode.ENFORCE, *MINE_ALL)
    with_topics(secured, MANY)
    values = {**LONG[key], "topics": None if key is ApiKey.METADATA else []}
    with watched(monkeypatch) as seen:
        _, reached = await asked(secured, key, values)
    assert (seen["decided"], seen["written"]) == (0, 0), "by the loop"
    assert str(reached[0]).count("mine-") == MANY // 2
    assert "others-" not in str(reached[0])


@pytest.mark.parametrize("rules", [MINE_ALL, [a_rule(Op.ALL, "*")]], ids=["half", "all"])
async def test_repeated_request_for_all_topics_is_forwarded_unchanged(
    rules: list[Acl], monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(Mode.ENFORCE, *rules)
    with_topics(secured, MANY)
    values = {**LONG[ApiKey.METADATA], "topics": None}
    _, before = await asked(secured, ApiKey.METADATA, values)
    with watched(monkeypatch) as seen:
        _, reached = await asked(secured, ApiKey.METADATA, values)
    assert reached == before
    assert (seen["decided anywhere"], seen["written anywhere"]) == (0, 0)
    assert seen["read"] == seen["read anywhere"], "what is short, by the loop"
    secured.forbid(*rules)
    _, reached = await asked(secured, ApiKey.METADATA, values)
    assert not reached[0].topics


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS])
async def test_short_request_is_decided_at_once(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread costs more than that, however many topics there are."""
    secured = Secured(Mode.ENFORCE, *MINE_ALL)
    with_topics(secured, MANY)
    values = {**LONG[key], "topics": [{"name": "mine-0001", "topic_id": None}]}
    with watched(monkeypatch) as seen:
        await asked(secured, key, values)
    assert seen["decided"] == seen["decided anywhere"] > 0
    with_topics(secured, 10)
    values["topics"] = None if key is ApiKey.METADATA else []
    with watched(monkeypatch) as seen:
        await asked(secured, key, values)
    assert seen["decided"] == seen["decided anywhere"] > 0


@pytest.mark.parametrize("key", LONG, ids=[key.name for key in LONG])
async def test_short_request_of_many_names_uses_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of a hundred names in two kilobytes held the event loop for seven milliseconds."""
    (field,) = (name for name, value in LONG[key].items() if isinstance(value, list))
    secured = Secured(Mode.ENFORCE, *MINE_ALL)
    for count, on_loop in ((NAMES_AT_ONCE, True), (NAMES_AT_ONCE + 1, False)):
        values = {**LONG[key], field: LONG[key][field][:count]}
        assert len(encode_request(key, SUPPORTED[key].last, values)) <= BYTES_AT_ONCE
        with watched(monkeypatch) as seen:
            await asked(secured, key, values)
        assert (seen["decided"] > 0) is on_loop
        assert seen["decided anywhere"] >= count


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS])
@pytest.mark.parametrize("count", [2, 2 * NAMES_AT_ONCE])
async def test_reply_with_client_rights_is_encoded_once(
    key: ApiKey, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was encoded for everybody, decoded, changed and encoded again."""
    secured = Secured(Mode.ENFORCE, a_rule(Op.WRITE, "mine-", pattern=Pattern.PREFIXED))
    values = {**LONG[key], "topics": LONG[key]["topics"][:count]}
    flag = "include_topic_authorized_operations"
    values |= {flag: True} if key is ApiKey.METADATA else {}
    version = SUPPORTED[key].last
    body = memoryview(bytearray(encode_request(key, version, values)))
    connection = ConnectionState()
    connection.principal = "User:alice"
    context = RequestContext(key, version, 1, body, connection)
    monkeypatch.setattr(gate, "changed", None)
    result = guarded(secured.handlers, secured.authority, Aside())[key](context)
    reply = await result if isinstance(result, Awaitable) else result
    told = {
        topic.name: (int(topic.error_code), topic.topic_authorized_operations)
        for topic in decode_response(key, version, reply).topics
    }
    may = OPERATION_BITS[Op.WRITE] | OPERATION_BITS[Op.DESCRIBE]
    none = (Code.TOPIC_AUTHORIZATION_FAILED, -(2**31))
    unknown = (Code.UNKNOWN_TOPIC_OR_PARTITION, may)
    assert told == {name: unknown if "mine" in name else none for name in NAMES[:count]}


async def test_rule_removed_meanwhile_applies_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each thing is decided by what is committed when it is its turn; nothing is remembered of what
    was."""
    secured = Secured(Mode.ENFORCE, *MINE_ALL)
    decided, asks = Rights._decide, 0

    def decide(self: Rights, *question: Any) -> bool:
        nonlocal asks
        asks += 1
        if asks == MANY // 2:
            secured.forbid(*MINE_ALL)
        return decided(self, *question)

    monkeypatch.setattr(Rights, "_decide", decide)
    answer, reached = await asked(secured, ApiKey.METADATA, LONG[ApiKey.METADATA])
    passed = [topic.name for topic in reached[0].topics]
    assert passed == [name for name in NAMES[: MANY // 2 - 1] if name.startswith("mine-")]
    refused = {t.name for t in answer.topics if t.error_code == Code.TOPIC_AUTHORIZATION_FAILED}
    assert refused == set(NAMES) - set(passed)
