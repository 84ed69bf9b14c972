"""Rights on records: a produce is decided in the turn of its append, a fetch at each look, however
long it has waited; and the replication port asks nobody for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.security.secured import Secured, a_rule
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import ANONYMOUS, Acl, AclOperation, ResourceType
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey

Op = AclOperation
DENIED = Code.TOPIC_AUTHORIZATION_FAILED


def rule(operation: AclOperation) -> Acl:
    return a_rule(operation, "t", principal=ANONYMOUS)


class Alone:
    """A broker that alone holds topic `t`, and a client of it without a name."""

    def __init__(self, broker: Broker, client: Client, secured: Secured) -> None:
        self.broker, self.client, self.secured = broker, client, secured

    @property
    def end(self) -> int:
        return self.broker.hosted("t").log.log_end_offset

    async def fetch(self, **more: Any) -> Any:
        return await self.client.fetch("t", 0, **more)

    async def produce(self) -> int:
        return (await self.client.produce("t", a_batch(1)))[0]


@pytest.fixture
async def alone(broker: Callable[[int], Broker], controller: Controller) -> Alone:
    one = await broker(0).start()
    controller.create("t", (0,))
    secured = Secured()
    routes = one.clients_routes
    routes.update(guarded(dict(routes), secured.authority, Aside()))  # type: ignore[arg-type]
    return Alone(one, await one.client(), secured)


async def test_produce_without_the_right_appends_nothing(alone: Alone) -> None:
    assert await alone.produce() == DENIED
    assert alone.end == 0
    alone.secured.allow(rule(Op.WRITE))
    assert await alone.produce() == Code.NONE
    alone.secured.forbid(rule(Op.WRITE))
    assert await alone.produce() == DENIED
    assert alone.end == 1


async def test_fetch_without_the_right_tells_no_record(alone: Alone) -> None:
    alone.secured.allow(rule(Op.WRITE))
    await alone.produce()
    fetched = await alone.fetch()
    assert (fetched.code, bytes(fetched.records)) == (DENIED, b"")
    alone.secured.allow(rule(Op.READ))
    fetched = await alone.fetch()
    assert (fetched.code, len(fetched.records)) == (Code.NONE, len(a_batch(1)))


async def test_parked_fetch_is_authorized_again_when_answered(
    alone: Alone,
) -> None:
    alone.secured.allow(rule(Op.WRITE), rule(Op.READ))
    waiting = asyncio.create_task(alone.fetch(wait_ms=30_000))
    await until(lambda: bool(alone.broker.hosted("t").replica.parked._for_commit))
    alone.secured.forbid(rule(Op.READ))
    other = await alone.broker.client()
    await other.produce("t", a_batch(1))
    fetched = await waiting
    assert (fetched.code, bytes(fetched.records)) == (DENIED, b"")


async def test_client_posing_as_follower_gets_no_record(
    broker: Callable[[int], Broker], controller: Controller
) -> None:
    one = broker(0)
    await one.start()
    controller.create("t", (0,))
    secured = Secured(Mode.ENFORCE, rule(Op.WRITE))
    behind = guarded(dict(one.clients_routes), secured.authority, Aside())  # type: ignore[arg-type]
    one.clients_routes.update(behind)
    client = await one.client()
    assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    assert await fetched_as_a_follower(client) == (Code.CLUSTER_AUTHORIZATION_FAILED, 0)
    cluster = {"resource": ResourceType.CLUSTER, "principal": ANONYMOUS}
    secured.allow(a_rule(Op.CLUSTER_ACTION, "kafka-cluster", **cluster))
    assert await fetched_as_a_follower(client) == (Code.CLUSTER_AUTHORIZATION_FAILED, 0)


async def fetched_as_a_follower(client: Client) -> tuple[int, int]:
    """Of topic `t`: the code and how many bytes of records."""
    reply: Any = await client.ask(ApiKey.FETCH, 12, fetch_values(replica_id=0))
    found = reply.responses[0].partitions[0]
    return int(found.error_code), len(found.records or b"")


async def test_audit_mode_lets_everything_through(alone: Alone) -> None:
    audited = Secured(Mode.AUDIT)
    alone.secured.authority.security = audited.authority.security
    assert await alone.produce() == Code.NONE
    assert (await alone.fetch()).code == Code.NONE
    assert alone.secured.authority.stats.would_deny >= 2


async def test_followers_need_no_rights_on_replication_port(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> None:
    secured = Secured()
    for one in three:
        routes = one.clients_routes
        routes.update(guarded(dict(routes), secured.authority, Aside()))  # type: ignore[arg-type]
    secured.allow(rule(Op.WRITE))
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert (await client.produce("t", a_batch(1)))[0] == Code.NONE  # all in-sync replicas have it
    assert three[1].hosted("t").log.log_end_offset == 1
