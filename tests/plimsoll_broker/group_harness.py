"""The handlers of groups over one shard without a log: requests go through their tables, encoded
and decoded as the sessions do it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.plimsoll_broker.described import an_image
from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel
from tests.plimsoll_core.groups.coordinator_model import an_image as topics

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_measures import GroupStats
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import group_handlers
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

GROUP = {"group_id": "g"}
NOBODY = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
SESSION_MS = 10_000


class FakeCoordinators:
    """All groups are here, in one shard without a log. Room is taken for what was found, not for
    what could be."""

    groups = members = 0
    transactions = None

    def __init__(self, *, looks_on: bool) -> None:
        settings = GroupSettings()
        self.model = CoordinatorModel(topics(orders=3), settings, looks_on=looks_on)
        self.refusal: RefusedAsWhole | None = None
        self.topics = InternalTopics(self._never)
        self.stats = GroupStats()
        self.asked: list[Operation] = []
        self.heard = asyncio.Event()
        self._told = 0

    async def _never(self, *_: object) -> Any:
        raise AssertionError("nothing is to be made")

    def ask(self, group_id: str, op: Any) -> Asker:
        self.asked.append(op)
        self.heard.set()
        asker = Asker()
        if self.refusal is not None:
            asker.answer(self.refusal)
            return asker
        self.model.submit(op, asker)
        self.tell()
        return asker

    def list_groups(self, op: Any) -> list[Asker]:
        return [self.ask("", op)]

    def order(self, group_id: str, op: Operation) -> None:
        self.asked.append(op)
        self.model.submit(op, None)
        self.tell()

    def advance(self, ms: int) -> None:
        self.model.advance(ms)
        self.tell()

    def tell(self) -> None:
        """Whoever has an answer by now hears it."""
        answers, self._told = self.model.answers[self._told :], len(self.model.answers)
        for token, answer in answers:
            if isinstance(token, Asker):
                token.answer(answer)


class Harness:
    """`connection`: the one over which requests come that name no other."""

    def __init__(self, image: ClusterImage | None = None, *, looks_on: bool = False) -> None:
        self.coordinators = FakeCoordinators(looks_on=looks_on)
        view = SimpleNamespace(image=image or an_image(), aside=Aside())
        self.handlers = group_handlers(view, self.coordinators)  # type: ignore[arg-type]
        self.connection = ConnectionState()
        self.client_id = "c"

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        return await self.raw(key, version, encode_request(key, version, values))

    async def raw(self, key: ApiKey, version: int, body: bytes) -> Any:
        return decode_response(key, version, await self.begin(key, version, body))

    def begin(
        self, key: ApiKey, version: int, body: bytes, connection: ConnectionState | None = None
    ) -> asyncio.Future[Reply]:
        """The reply's bytes, now or later; what is decided in the call is decided now."""
        on = connection or self.connection
        context = RequestContext(key, version, 7, memoryview(bytearray(body)), on)
        context.client_id, context.connection.client = self.client_id, "127.0.0.1:9"
        reply: Any = self.handlers[key](context)
        if asyncio.isfuture(reply) or asyncio.iscoroutine(reply):
            return asyncio.ensure_future(reply)
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        done.set_result(reply)
        return done

    def parked(self, key: ApiKey, version: int, values: dict[str, Any]) -> "Parked":
        return Parked(key, version, self.begin(key, version, encode_request(key, version, values)))

    # --- offsets --------------------------------------------------------------------------------

    async def commit(self, version: int, *offsets: tuple[int, int], **more: Any) -> list[int]:
        reply = await self.ask(ApiKey.OFFSET_COMMIT, version, commit_of(*offsets, **more))
        return [int(one.error_code) for topic in reply.topics for one in topic.partitions]

    async def fetch(self, version: int, indexes: list[int] | None) -> tuple[int, dict[int, int]]:
        """The group's code and its offsets by partition."""
        asked = None if indexes is None else [{"name": "orders", "partition_indexes": indexes}]
        one = {**GROUP, "topics": asked}
        values = {"groups": [one], "require_stable": True} if version >= 8 else one
        values = {"require_stable": True, **values} if version >= 7 else values
        reply = await self.ask(ApiKey.OFFSET_FETCH, version, values)
        group = reply.groups[0] if version >= 8 else reply
        rows = [row for topic in group.topics for row in topic.partitions]
        codes = {int(row.error_code) for row in rows}
        code = int(getattr(group, "error_code", 0)) or max(codes, default=0)
        return code, {row.partition_index: row.committed_offset for row in rows}

    # --- members --------------------------------------------------------------------------------

    async def join(self, version: int = 9, **more: Any) -> Any:
        """The answer, when the group's first delay is over if it must be."""
        self.coordinators.heard.clear()
        parked = self.parked(ApiKey.JOIN_GROUP, version, join_of(**more))
        await self.coordinators.heard.wait()  # it may be read in a thread
        if "g" in self.coordinators.model.turn.soft.classic:
            self.coordinators.advance(3_000)
        return await parked.told()

    async def joined(self, version: int = 9, **more: Any) -> Any:
        """The same of a member that comes again if it is told its id."""
        reply = await self.join(version, **more)
        if int(reply.error_code) == 79:
            reply = await self.join(version, **{**more, "member_id": str(reply.member_id)})
        return reply

    async def stable(self, **more: Any) -> Any:
        """A member alone, with its assignment."""
        joined = await self.joined(**more)
        assert int(joined.error_code) == 0
        parts = [{"member_id": str(joined.member_id), "assignment": b"part"}]
        values = {**sync_of(joined), "assignments": parts}
        assert int((await self.ask(ApiKey.SYNC_GROUP, 5, values)).error_code) == 0
        return joined


class Parked:
    """A request that may still be waiting."""

    def __init__(self, key: ApiKey, version: int, reply: asyncio.Future[Reply]) -> None:
        self.key, self.version, self.reply = key, version, reply

    async def told(self) -> Any:
        reply: Any = await self.reply
        return decode_response(self.key, self.version, reply)


# --- requests, with all that any version has -----------------------------------------------------


def commit_of(*offsets: tuple[int, int], **more: Any) -> dict[str, Any]:
    rows = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": None}
        for index, offset in offsets
    ]
    topics = [{"name": "orders", "partitions": rows}]
    return {**GROUP, **NOBODY, "retention_time": -1, "topics": topics, **more}


def join_of(**more: Any) -> dict[str, Any]:
    return {
        **GROUP,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        "reason": None,
        **more,
    }


def member_of(joined: Any, **more: Any) -> dict[str, Any]:
    return {
        **GROUP,
        "generation_id": int(joined.generation_id),
        "member_id": str(joined.member_id),
        "group_instance_id": None,
        **more,
    }


def sync_of(joined: Any, **more: Any) -> dict[str, Any]:
    names = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    return {**member_of(joined), **names, **more}


def leave_of(*members: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Before version 3 the first alone."""
    rows = [{"group_instance_id": None, "reason": None, **one} for one in members]
    first = rows[0] if rows else {"member_id": ""}
    return {**GROUP, "member_id": first["member_id"], "members": rows, **more}
