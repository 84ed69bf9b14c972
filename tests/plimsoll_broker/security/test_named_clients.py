"""The controller is told for whom it is asked, also where the broker asks nobody for rights."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.security.secured import NO_OPERATIONS, Secured, a_rule, connected

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import behalf_of
from plimsoll_broker.handlers.routes import admin_handlers
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, TopicAnswer, TopicsAnswer
from plimsoll_core.security.acl import ANONYMOUS, AclOperation
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey


@pytest.mark.parametrize("mode", list(Mode))
async def test_change_is_forwarded_in_the_clients_name(
    mode: Mode,
) -> None:
    secured = Secured(
        mode, a_rule(AclOperation.CREATE, "new"), a_rule(AclOperation.DESCRIBE, "new")
    )
    made_by_itself = asyncio.Event()

    async def command(request: Any, timeout_ms: int) -> Answer:
        answer = await secured.command(request, timeout_ms)
        if len(secured.commands) == 2:
            made_by_itself.set()
        return answer

    view = ClusterView(
        broker_id=BrokerId(1),
        watch=secured.watch,
        command=command,
        configs={"auto.create.topics.enable": "true"},
    )
    secured.handlers |= admin_handlers(view)
    secured.answer = TopicsAnswer(topics=(TopicAnswer(name="new", code=Code.TOPIC_ALREADY_EXISTS),))
    async with secured.served() as server, connected(server) as client:
        await client.log_in()
        wish = {"name": "new", "num_partitions": 1, "replication_factor": 1}
        wish |= {"assignments": [], "configs": []}
        asked = {"topics": [wish], "timeout": 30_000, "validate_only": False}
        await client.ask(ApiKey.CREATE_TOPICS, 5, asked)
        makes = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True, **NO_OPERATIONS}
        await client.ask(ApiKey.METADATA, 9, makes)
        async with asyncio.timeout(30):
            await made_by_itself.wait()
    by_request, by_itself = (command.behalf for command in secured.commands)
    assert by_request == by_itself
    assert (by_request.principal, by_request.host) == ("User:alice", "127.0.0.1")
    assert secured.watch.image.security.login_is_good("alice", by_request.login)


async def test_controller_of_before_rights_is_named_no_client() -> None:
    context = RequestContext(ApiKey.CREATE_TOPICS, 5, 1, memoryview(b""))
    secured = Secured(Mode.OFF)
    view = ClusterView(
        broker_id=BrokerId(1), watch=secured.watch, command=secured.command, configs={}
    )
    told = behalf_of(view, context)
    assert told is not None
    assert (told.principal, told.login) == (ANONYMOUS, b"")
    secured.watch.image = replace(secured.watch.image, metadata_version=2)
    assert behalf_of(view, context) is None
