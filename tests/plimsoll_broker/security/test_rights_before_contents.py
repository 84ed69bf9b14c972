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
from tests.plimsoll_broker.security.guard_cases import CASES
from tests.plimsoll_broker.security.secured import NO_OPERATIONS, Secured
from tests.plimsoll_broker.security.test_group_rights import CASES as GROUP_CASES
from tests.plimsoll_broker.test_batch_checks import produced
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.handlers import batch_checks
from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import routes
from plimsoll_broker.handlers.security.gate import GUARDS, IN_HANDLER, guarded
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.storage.log_store import NewLogs
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.listener_peers import Port
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.kernel.settings import OffsetsTopic
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.topics import EnsureInternalTopic
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
    return found


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
]
"""What looks at contents, or finds what a request names; and of the replica manager:"""
FOUND_BY = ("by_name", "by_key", "topic_id", "missing")


class Stranger:
    """A user without any right, at a broker with all its handlers; `done`: work with contents."""

    def __init__(self, table: dict[ApiKey, Any], done: list[str]) -> None:
        self.table = table
        self.done = done
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
        controller.settings, offsets_topic=OffsetsTopic(partitions=1, replication_factor=1)
    )
    controller.create(THERE, (0,))
    controller.request(EnsureInternalTopic(name=TOPIC))
    hear_controller(one)
    await until(lambda: member.active)
    await until(lambda: one.store.begin_new() is None)
    assert not isinstance(await member.commit(1, THERE), Exception)
    asked: list[Any] = []

    async def command(request: Any, *_: object, **__: object) -> Any:
        asked.append(request)
        raise AssertionError(f"the controller is asked {request}")

    client: Any = SimpleNamespace(command=command, topic_defaults=None)
    watch = ImageWatch(controller.image)
    lifetime = BrokerLifetime(one.id, one.epoch)
    aside = Aside()
    done: list[str] = []
    table = routes(lifetime, client, watch, member.coordinators, Port.CLIENTS, aside)
    secured = Secured()
    watched = {key: _reached(key, handler, done) for key, handler in table.items()}
    found_by = [(one.manager, name) for name in FOUND_BY]
    _watch_work(monkeypatch, [*WORK, *found_by], done)
    yield Stranger(guarded(watched, secured.authority, aside), done)
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
