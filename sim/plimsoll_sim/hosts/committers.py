"""Simulated clients that commit, fetch and delete offsets, for partitions that they assigned to
themselves, and sometimes delete their group.

Each has one group and one partition of a topic. It commits increasing offsets, each again until the
outcome is certain, and fetches the committed offset from the coordinator and from former
coordinators. It reports the answers to the `GroupWitness`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Protocol

from plimsoll_core.errors import Code
from plimsoll_sim.hosts.client_calls import ClientConnection, Lost
from plimsoll_sim.hosts.clients import Client, Habits, Witness
from plimsoll_wire.api_versions import ApiKey

FORMER_SHARE = 0.2
"""Probability that a client asks a former coordinator."""
FETCH_SHARE = 0.5
FORGET_SHARE = 0.1
"""Probability that a client deletes its committed offset instead of committing another one."""
DELETE_SHARE = 0.5
"""Probability that a client deletes the whole group instead of the offset, in runs that delete
groups."""
HOARDED = 400
"""Number of groups of one hoarder: many times as many as fit into a broker's memory for groups."""
REST_SHARE = 0.15
"""Probability that a client pauses so long that its offset may expire, in runs in which offsets
expire."""


class GroupWitness(Protocol):
    """Receives reports of committers' requests and answers."""

    def committing(self, group: str, offset: int | None) -> None:
        """Record a commit that is about to be sent. `offset` None: a deletion."""

    def committed(self, group: str, offset: int | None) -> None: ...
    def asks(self, group: str, host: str) -> object:
        """Return the state before an OffsetFetch is sent; the caller passes it to `fetched` as
        `asked`."""

    def fetched(self, group: str, asked: object, offset: int) -> None: ...


def commit_rows(partitions: Iterable[int], offset: int, metadata: str = "") -> list[dict[str, Any]]:
    """Return one request row per partition, all with the same offset."""
    return [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        for partition in partitions
    ]


def commit_values(group: str, topic: str, partitions: Iterable[int], offset: int) -> dict[str, Any]:
    """Return the body of an OffsetCommit request (version 8) of a client that is no member of the
    group."""
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": commit_rows(partitions, offset)}],
    }


def delete_offset_values(group: str, topic: str, partition: int) -> dict[str, Any]:
    """Return the body of an OffsetDelete request (version 0) for one partition."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
    return {"group_id": group, "topics": topics}


def fetch_offset_values(group: str, topic: str, partition: int) -> dict[str, Any]:
    """Return the body of an OffsetFetch request (version 7) for one partition."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    return {"group_id": group, "topics": topics, "require_stable": False}


async def coordinator_of(client: Client, rng: random.Random, group: str) -> str:
    """Return the host of the group's coordinator, as any broker names it."""
    connection = await client.connect(rng.choice(client.habits.hosts))
    try:
        values = {"key_type": 0, "coordinator_keys": [group]}
        reply = await client.ask(connection, ApiKey.FIND_COORDINATOR, 4, values)
    finally:
        connection.close()
    (found,) = reply.coordinators
    if int(found.error_code):
        raise Lost(f"find coordinator: {found.error_code}")
    return str(found.host)


class GroupHoarder(Client):
    """Commits for more and more groups, with the longest metadata, whatever the answers; sometimes
    deletes one. `pause_s`: seconds between two requests."""

    pause_s = 0.02

    async def session(self) -> None:
        group = f"{self.habits.name}.{self._rng.randrange(HOARDED)}"
        host = await coordinator_of(self, self._rng, group)
        connection = await self.connect(host)
        try:
            if self._rng.random() < FORGET_SHARE:
                values: dict[str, Any] = {"groups_names": [group]}
                await self.ask(connection, ApiKey.DELETE_GROUPS, 2, values)
            else:
                text = "h" * self._rng.choice((0, 4_000, 4_000))
                rows = commit_rows([self.at.partition], self._rng.randrange(1_000), text)
                values = {**commit_values(group, self.at.topic, [], 0)}
                values["topics"] = [{"name": self.at.topic, "partitions": rows}]
                await self.ask(connection, ApiKey.OFFSET_COMMIT, 8, values)
        finally:
            connection.close()
        await self.think(self.pause_s)


class OffsetCommitter(Client):
    """The only client of one group."""

    def __init__(
        self, habits: Habits, rng: random.Random, witness: Witness, groups: GroupWitness
    ) -> None:
        super().__init__(habits, rng, witness)
        self._groups = groups
        self._offset = 0
        # The requested offset until the answer is certain; None if it is to be deleted.
        self._wanted: int | None = None
        self._former: list[str] = []
        self.group = habits.name

    async def session(self) -> None:
        host = await coordinator_of(self, self._rng, self.group)
        self._former = [*self._former[-3:], host]
        connection = await self.connect(host)
        try:
            while not (self.habits.stopped() and self.idle):
                # It also fetches while the outcome of the last request is unknown.
                if self._rng.random() < FETCH_SHARE:
                    await self._fetch(connection, host)
                await self._change(connection)
                if self._rng.random() < FORMER_SHARE:
                    await self._ask_former()
                await self.think()
                await self._rest()
        finally:
            connection.close()

    async def _rest(self) -> None:
        kept_ms = self.habits.kept_ms
        if kept_ms is None or self.habits.stopped() or self._rng.random() >= REST_SHARE:
            return
        await asyncio.sleep(kept_ms * self._rng.uniform(0.5, 2.0) / 1_000)

    async def _change(self, connection: ClientConnection) -> None:
        """Commit the next offset, or repeat the last commit if its outcome is not known."""
        if self.idle:
            self._offset += self._rng.randint(1, 5)
            forgets = self._rng.random() < FORGET_SHARE and self.habits.kept_ms is None
            self._wanted = None if forgets else self._offset
            self.idle = False
        wanted, at = self._wanted, self.at
        self._groups.committing(self.group, wanted)
        if wanted is None and self._deletes_group():
            values = {"groups_names": [self.group]}
            reply = await self.ask(connection, ApiKey.DELETE_GROUPS, 2, values)
            code = int(reply.results[0].error_code)
        elif wanted is None:
            values = delete_offset_values(self.group, at.topic, at.partition)
            reply = await self.ask(connection, ApiKey.OFFSET_DELETE, 0, values)
            code = int(reply.error_code)
        else:
            values = commit_values(self.group, at.topic, [at.partition], wanted)
            reply = await self.ask(connection, ApiKey.OFFSET_COMMIT, 8, values)
            code = int(reply.topics[0].partitions[0].error_code)
        if code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            raise Lost(f"commit: {code}")
        self._groups.committed(self.group, wanted)
        self.idle = True

    def _deletes_group(self) -> bool:
        """Return True if the whole group is to be deleted, the same at each call until the
        request's outcome is certain. It draws from a random generator of its own, so that runs that
        delete no groups stay the same."""
        dice = random.Random(f"{self.group} {self._offset}")
        return self.habits.deletes_groups and dice.random() < DELETE_SHARE

    async def _fetch(self, connection: ClientConnection, host: str) -> None:
        asked = self._groups.asks(self.group, host)
        values = fetch_offset_values(self.group, self.at.topic, self.at.partition)
        reply = await self.ask(connection, ApiKey.OFFSET_FETCH, 7, values)
        if int(reply.error_code):
            raise Lost(f"fetch: {reply.error_code}")
        self._groups.fetched(self.group, asked, int(reply.topics[0].partitions[0].committed_offset))

    async def _ask_former(self) -> None:
        """Ask a former coordinator, which may not know yet that it was replaced."""
        host = self._rng.choice(self._former)
        try:
            connection = await self.connect(host)
            try:
                await self._fetch(connection, host)
            finally:
                connection.close()
        except Lost:
            return
