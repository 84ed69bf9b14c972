"""Nothing of a request is opened, walked or looked up before its client's right: for each API that
is served, what is asked about something that exists and about something that does not costs the
same work, none, and is answered with the same bytes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.coordinating_brokers import TOPIC, Member
from tests.plimsoll_broker.group_harness import NOBODY, join_of
from tests.plimsoll_broker.security.guard_cases import CASES, OF_MINE
from tests.plimsoll_broker.security.secured import NO_OPERATIONS, Secured
from tests.plimsoll_broker.security.test_group_rights import CASES as GROUP_CASES
from tests.plimsoll_broker.test_batch_checks import produced
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers import batch_checks
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import routes
from plimsoll_broker.handlers.security.gate import GUARDS, IN_HANDLER, guarded
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.storage.log_store import NewLogs
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import (
    MetadataVersionFinalized,
    QuotasSet,
    ScramCredentialSet,
)
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.topics import EnsureInternalTopic
from plimsoll_core.quotas.state import QuotaEntity, QuotaRow, QuotaValues
from plimsoll_core.transactions.settings import TransactionSettings
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.batches import HEADER_SIZE, parse_header, seal
from plimsoll_wire.compression import ZSTD, packed
from plimsoll_wire.messages import encode_request

THERE, NOT_THERE = "of-victim", "of-nobody"
"""Of one length, so that answers can be compared byte by byte."""
RECORDS = 20_000
Request = tuple[ApiKey, int, dict[str, Any]]


@cache
def a_bomb() -> bytes:
    """A few hundred bytes that open to many records."""
    batch = a_batch(RECORDS)
    header = parse_header(batch)._replace(attributes=ZSTD)
    return seal(header, packed(ZSTD, batch[HEADER_SIZE:]))


def named(value: Any, name: str) -> Any:
    """A case's request about `name`."""
    if isinstance(value, dict):
        return {key: named(one, name) for key, one in value.items()}
    if isinstance(value, list):
        return [named(one, name) for one in value]
    return name if value in ("orders", "mine", "bob", "g") else value


def requests(name: str) -> list[Request]:
    """Everything that is served."""
    found: list[Request] = []
    for key, values, *_ in (*CASES, *GROUP_CASES):
        found.append((key, SUPPORTED[key].last, named(values, name)))
    bomb = a_bomb()
    found += [
        (ApiKey.PRODUCE, 9, produced(bomb, topic=name)),
        (ApiKey.PRODUCE, 9, produced(a_batch(1), topic=name)),
        (ApiKey.PRODUCE, 9, produced(b"no batch", topic=name)),
        (ApiKey.PRODUCE, 9, produced([bomb] * 150, topic=name)),
        (ApiKey.FETCH, 12, fetch_values(name)),
        (ApiKey.FETCH, 12, fetch_values(name, max_wait=60_000, min_bytes=1_000)),
        (ApiKey.FETCH, 12, fetch_values(name, range(1_000))),
        (ApiKey.METADATA, 9, a_metadata(name)),
        (ApiKey.METADATA, 9, {**a_metadata(name), "allow_auto_topic_creation": True}),
        (ApiKey.OFFSET_COMMIT, SUPPORTED[ApiKey.OFFSET_COMMIT].last, a_commit(name)),
        (ApiKey.JOIN_GROUP, SUPPORTED[ApiKey.JOIN_GROUP].last, join_of(group_id=name)),
        (ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}),
        (ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}),
        (ApiKey.LIST_OFFSETS, SUPPORTED[ApiKey.LIST_OFFSETS].last, offsets_by_time(name)),
    ]
    found += [(key, 1, a_heartbeat(name)) for key in NEWER_GROUPS]
    found += [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, an_addition(name)),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 4, a_verification(name)),
        (ApiKey.LIST_TRANSACTIONS, 1, A_LIST),
        (
            ApiKey.ADD_OFFSETS_TO_TXN,
            SUPPORTED[ApiKey.ADD_OFFSETS_TO_TXN].last,
            named({**OF_MINE, "group_id": "mine"}, name),
        ),
    ]
    return [one for one in found if one[0] not in OF_BROKERS]


OF_BROKERS = {ApiKey.WRITE_TXN_MARKERS}
"""Served on the replication port alone."""
A_LIST = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}


def an_addition(name: str) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]}],
    }


def a_verification(name: str) -> dict[str, Any]:
    asked = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "verify_only": True}
    return {"transactions": [{**asked, "topics": [{"name": name, "partitions": [0]}]}]}


NEWER_GROUPS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT)


def a_heartbeat(name: str) -> dict[str, Any]:
    return {
        "group_id": name,
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 1_000,
        "subscribed_topic_names": [name],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }


def a_metadata(name: str) -> dict[str, Any]:
    return {"topics": [{"name": name}], "allow_auto_topic_creation": False, **NO_OPERATIONS}


def a_commit(name: str) -> dict[str, Any]:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    topics = [{"name": name, "partitions": rows}]
    return {"group_id": name, **NOBODY, "retention_time": -1, "topics": topics}


def offsets_by_time(name: str) -> dict[str, Any]:
    one = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 5}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": [one]}],
        "timeout": 0,
    }


WORK: list[tuple[Any, str]] = [
    (batch_checks, "effort"),
    (batch_checks, "check_batch"),
    (batch_checks, "opened"),
    (Coordinators, "ask"),
    (Coordinators, "list_groups"),
    (TransactionCoordinators, "ask"),
    (TransactionCoordinators, "shards"),
]
"""What looks at contents, or finds what a request names; and of the replica manager:"""
FOUND_BY = ("by_name", "by_key", "topic_id", "missing")


OLDER: dict[ApiKey, Callable[[str], dict[str, Any]]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda name: {**a_verification(name), **an_addition(name)},
    ApiKey.DESCRIBE_CLUSTER: lambda _: {"include_fenced_brokers": False},
    ApiKey.FIND_COORDINATOR: lambda name: {"key": name},
    ApiKey.LEAVE_GROUP: lambda _: {"member_id": "m"},
    ApiKey.OFFSET_COMMIT: lambda _: {"retention_time": -1},
    ApiKey.OFFSET_FETCH: lambda name: {
        "group_id": name,
        "topics": [{"name": name, "partition_indexes": [0]}],
    },
}
"""What only some versions of a request have."""
BY_ID_SINCE = {ApiKey.FETCH: 13, ApiKey.METADATA: 10}
"""The versions that name topics by id, which a client may only guess."""


def every_version(name: str) -> list[Request]:
    """Everything that is served, in each form that a client may choose."""
    found = []
    for key, _, values in requests(name):
        last = min(SUPPORTED[key].last, BY_ID_SINCE.get(key, 100) - 1)
        asked = {**values, **OLDER.get(key, lambda _: {})(name)}
        found += [(key, version, asked) for version in range(SUPPORTED[key].first, last + 1)]
    return found


EVERYTHING: list[tuple[ApiKey, dict[str, Any]]] = [
    (ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": True, **NO_OPERATIONS}),
    (ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}),
    (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [], "response_partition_limit": 100, "cursor": None},
    ),
    (ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": 0}),
    (ApiKey.ELECT_LEADERS, {"election_type": 0, "topic_partitions": None, "timeout": 0}),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False}),
    (ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": []}),
    (ApiKey.LIST_TRANSACTIONS, A_LIST),
]
"""Requests that name nothing and ask for everything."""


class Stranger:
    """A user without any right, at a broker with all its handlers; `done`: work with contents;
    `make_more`: makes another topic and another group, user and quota."""

    def __init__(
        self, table: dict[ApiKey, Any], done: list[str], make_more: Callable[[], Awaitable[None]]
    ) -> None:
        self.table = table
        self.done = done
        self.make_more = make_more
        self.connection = ConnectionState()
        self.connection.principal, self.connection.host = "User:nobody", "10.0.0.1"

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
        body = encode_request(key, version, values)
        context = RequestContext(key, version, 1, memoryview(bytearray(body)), self.connection)
        reply = self.table[key](context)
        reply = await reply if isinstance(reply, Awaitable) else reply
        return b"".join([reply] if isinstance(reply, bytes | bytearray | memoryview) else reply)


@pytest.fixture
async def stranger(
    broker: Callable[[int], Broker], controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stranger]:
    one = await broker(0).start()
    member = Member(one)
    controller.image = apply(
        controller.image, MetadataVersionFinalized(cause="test", metadata_version=2)
    )
    controller.settings = replace(
        controller.settings, offsets_topic=InternalTopic(partitions=1, replication_factor=1)
    )
    controller.create(THERE, (0,))
    controller.create("t", (0,))  # of which groups commit offsets
    controller.request(EnsureInternalTopic(name=TOPIC))
    hear_controller(one)
    await until(lambda: member.active)
    await until(lambda: one.store.begin_new() is None)
    assert await member.commit(1, THERE) == 0
    asked: list[Any] = []

    async def command(request: Any, *_: object, **__: object) -> Any:
        asked.append(request)
        raise AssertionError(f"the controller is asked {request}")

    transactions = TransactionCoordinators(
        one.manager, TransactionSettings(), member.coordinators.topics
    )
    member.coordinators.transactions = ServedTransactions.of(transactions)
    client: Any = SimpleNamespace(command=command, topic_defaults=None)
    watch = ImageWatch(controller.image)
    lifetime = BrokerLifetime(one.id, one.epoch)
    aside = Aside()
    done: list[str] = []
    table = routes(lifetime, client, watch, member.coordinators, aside)
    secured = Secured()
    watched = {key: _reached(key, handler, done) for key, handler in table.items()}
    found_by = [(one.manager, name) for name in FOUND_BY]
    _watch_work(monkeypatch, [*WORK, *found_by], done)

    async def make_more() -> None:
        controller.create("more", (0,))
        hear_controller(one)
        await until(lambda: one.store.begin_new() is None)
        assert await member.commit(1, "more") == 0
        row = QuotaRow(entity=QuotaEntity(user="more"), values=QuotaValues(producer_byte_rate=1.0))
        for record in (
            ScramCredentialSet(cause="test", credential=a_credential("more")),
            QuotasSet(cause="test", row=row),
        ):
            controller.image = apply(controller.image, record)
        watch.update(watch.image, controller.image)

    yield Stranger(guarded(watched, secured.authority, aside), done, make_more)
    await member.stop()


def _reached(key: ApiKey, handler: Any, done: list[str]) -> Any:
    """A handler behind a guard hears no name that its client has no right on."""

    def handle(context: RequestContext) -> Any:
        body = bytes(context.body)
        if GUARDS[key] is not IN_HANDLER and (THERE.encode() in body or NOT_THERE.encode() in body):
            done.append(f"{key.name} reached its handler")
        return handler(context)

    return handle


def _watch_work(
    monkeypatch: pytest.MonkeyPatch, work: list[tuple[Any, str]], done: list[str]
) -> None:
    for owner, name in work:
        real = getattr(owner, name)
        assert callable(real)

        def noted(*arguments: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            if arguments != (None,):  # no contents
                done.append(_name)
            return _real(*arguments, **more)

        monkeypatch.setattr(owner, name, noted)
    among = NewLogs.among

    def watched(self: NewLogs, partitions: Any) -> Any:
        given = list(partitions)
        if given:
            done.append("among new logs")
        return among(self, given)

    monkeypatch.setattr(NewLogs, "among", watched)


async def test_every_served_api_is_tried_here(stranger: Stranger) -> None:
    assert {key for key, *_ in requests(THERE)} == set(stranger.table)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    range(len(requests(THERE))),
    ids=[f"{key.name}-{n}" for n, (key, *_) in enumerate(requests(THERE))],
)
async def test_unauthorized_request_costs_no_work(stranger: Stranger, number: int) -> None:
    answers = []
    for name in (THERE, NOT_THERE):
        key, version, values = requests(name)[number]
        answers.append(await stranger.ask(key, version, values))
        assert stranger.done == [], key.name
    there, not_there = answers
    assert there == not_there.replace(NOT_THERE.encode(), THERE.encode())


@pytest.mark.slow
async def test_stranger_learns_nothing_in_any_version(stranger: Stranger) -> None:
    for there, not_there in zip(every_version(THERE), every_version(NOT_THERE), strict=True):
        found, missing = await stranger.ask(*there), await stranger.ask(*not_there)
        assert found == missing.replace(NOT_THERE.encode(), THERE.encode()), there


async def test_stranger_sees_no_number_of_hidden_things(stranger: Stranger) -> None:
    """What is asked for all is answered alike before and after another thing of each kind."""
    asked = [
        (key, version, values)
        for key, values in EVERYTHING
        for version in range(SUPPORTED[key].first, SUPPORTED[key].last + 1)
        if (key, version) != (ApiKey.METADATA, 0)  # it knows no null
    ]
    asked.append((ApiKey.METADATA, 0, {"topics": []}))
    before = [await stranger.ask(*one) for one in asked]
    await stranger.make_more()
    for one, answer in zip(asked, before, strict=True):
        assert await stranger.ask(*one) == answer, one


async def test_requests_decompressing_to_millions_open_none(
    stranger: Stranger,
) -> None:
    """66 of them, 208 kB from a user without a right, cost a broker five minutes."""
    bomb = a_bomb()
    for _ in range(66):
        await stranger.ask(ApiKey.PRODUCE, 9, produced(bomb, topic=THERE))
    assert stranger.done == []


def test_what_is_watched_is_what_handlers_call() -> None:
    """A function that goes by another name would be counted no more."""
    source = inspect.getsource(batch_checks)
    assert all(f"{name}(" in source for name in ("effort", "check_batch"))
