"""Simulated members of consumer groups: eager, cooperative in two steps, or static, as real
consumers are.

Each member is a process of its own. It joins, assigns the parts if it is the group's leader, sends
heartbeats, commits, and sometimes changes its subscription, leaves, or starts again. It reports the
answers to the `MemberWitness`. The parts that members divide are the numbers below `PARTS`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plimsoll_core.errors import Code
from plimsoll_sim.hosts.client_calls import ClientConnection, Lost
from plimsoll_sim.hosts.clients import Client, Habits, Witness
from plimsoll_sim.hosts.committers import commit_rows
from plimsoll_wire.api_versions import ApiKey

PARTS = 6
COMMITTED_PARTITIONS = 3
"""Number of partitions for which members commit. If the topic has fewer, commits for the others are
refused."""
SESSION_MS = 4_000
REBALANCE_MS = 6_000
_LOST_IDS = frozenset({Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID})
_AGAIN = frozenset({Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS})


class MemberWitness(Protocol):
    """Receives reports of the answers that members get."""

    def synced(self, group: str, generation: int, seat: str, part: bytes) -> None: ...


@dataclass(slots=True)
class Fellows:
    """All living members of one group."""

    members: list[GroupMember] = field(default_factory=list)

    @property
    def shared_out(self) -> bool:
        """Return True if every part has one owner, and all members are of one generation and know
        that they still are members."""
        owned = sorted(part for member in self.members for part in member.owned)
        if not all(member.sure for member in self.members):
            return False
        generations = {member.settled for member in self.members}
        return owned == list(range(PARTS)) and len(generations) == 1 and None not in generations


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberKind:
    """A kind of member. `instance`: the instance id of a static member. `restless`: True if it
    sometimes leaves and starts again."""

    group: str
    fellows: Fellows
    cooperative: bool = False
    instance: str | None = None
    restless: bool = True


def kinds_of(number: int, kinds: Sequence[str]) -> Iterator[tuple[str, MemberKind]]:
    """Yield name and kind of each member of one group. `kinds`: "eager", "cooperative" or "static"
    for each; `number`: that of the group."""
    fellows = Fellows()
    for index, kind in enumerate(kinds):
        instance = f"instance-{index}" if kind == "static" else None
        yield (
            f"member-{number}-{index}",
            MemberKind(
                group=f"group-{number}",
                fellows=fellows,
                cooperative=kind == "cooperative",
                instance=instance,
            ),
        )


def _numbers(text: bytes) -> set[int]:
    return {int(one) for one in text.split(b",") if one}


def _text(numbers: Sequence[int] | set[int]) -> bytes:
    return b",".join(b"%d" % number for number in sorted(numbers))


class GroupMember(Client):
    """A member of a classic group. It is `idle` once the whole group has divided its parts. It
    lives as long as its world: if it stopped, the others' generation could end, and its parts would
    have no owner."""

    def __init__(
        self, habits: Habits, rng: random.Random, witness: Witness, kind: MemberKind,
        groups: MemberWitness,
    ) -> None:  # fmt: skip
        self.kind = kind
        super().__init__(habits, rng, witness)
        self._groups = groups
        self._wish = 0
        self._offset = 0
        # The coordinator's answers. The id outlives a lost connection, the join does not.
        self.member_id = ""
        self._joined: Any = None
        self._part: bytes | None = None
        # The parts that it works on; a cooperative member keeps them while it rejoins.
        self.owned: set[int] = set()
        # True if its coordinator has said in this session that it is of its generation.
        self.sure = False
        # How often it was fenced because another member has its instance id.
        self.fenced = 0
        # The generation before the one that it is in.
        self._former: int | None = None
        kind.fellows.members.append(self)

    @property
    def idle(self) -> bool:
        return self.kind.fellows.shared_out

    @idle.setter
    def idle(self, value: bool) -> None:
        """Ignore the value: `idle` is computed from the members' state."""

    @property
    def over(self) -> bool:
        return False

    @property
    def settled(self) -> int | None:
        """Return the generation of the member's assignment; None if it has none."""
        return None if self._part is None else int(self._joined.generation_id)

    @property
    def seat(self) -> str:
        return self.kind.instance or self.member_id

    def told(self) -> str:
        """Describe the member in a line for people."""
        if self._joined is None:
            return f"{self.name}: joins"
        if self._part is None:
            return f"{self.name}: was told of generation {int(self._joined.generation_id)}"
        leads = " leads" if str(self._joined.leader) == self.member_id else ""
        fenced = ", was fenced" if self.fenced else ""
        has = _text(self.owned).decode()
        return f"{self.name}: generation {self.settled}{leads}, has {has}{fenced}"

    # --- its life ---------------------------------------------------------------------------------

    async def session(self) -> None:
        self.sure = False
        connection = await self.connect(await self._coordinator())
        try:
            while True:
                if self._joined is None:
                    await self._join(connection)
                elif self._part is None:
                    await self._sync(connection)
                else:
                    await self.think()
                    await self._live(connection)
        finally:
            connection.close()

    async def _live(self, connection: ClientConnection) -> None:
        chance = self._rng.random() if self.kind.restless and not self.habits.stopped() else 0.5
        if chance < 0.03:
            self._wish += 1
            self._again()
        elif chance < 0.05:
            await self._leave(connection)
        elif chance < 0.08:
            self._begin_anew()
        elif chance < 0.11:
            await self._commit_late(connection)
        elif chance < 0.3:
            await self._commit(connection)
        else:
            await self._heartbeat(connection)

    def _again(self) -> None:
        """Join the group again. An eager member gives up its parts meanwhile."""
        if self._joined is not None:
            self._former = int(self._joined.generation_id)
        self._joined = self._part = None
        if not self.kind.cooperative:
            self.owned = set()

    def _begin_anew(self) -> None:
        self.member_id, self._former = "", None
        self._joined = self._part = None
        self.owned = set()

    def _refused(self, code: int) -> None:
        if code in _LOST_IDS:
            self.fenced += code == Code.FENCED_INSTANCE_ID
            self._begin_anew()
        elif code in _AGAIN:
            if code == Code.ILLEGAL_GENERATION:
                self.owned = set()
            self._again()
        else:
            raise Lost(f"{self.kind.group}: {code}")

    # --- requests ---------------------------------------------------------------------------------

    async def _coordinator(self) -> str:
        """Return the host of the group's coordinator, as any broker names it."""
        connection = await self.connect(self._rng.choice(self.habits.hosts))
        try:
            values = {"key_type": 0, "coordinator_keys": [self.kind.group]}
            reply = await self.ask(connection, ApiKey.FIND_COORDINATOR, 4, values)
        finally:
            connection.close()
        (found,) = reply.coordinators
        if int(found.error_code):
            raise Lost(f"find coordinator: {found.error_code}")
        return str(found.host)

    async def _join(self, connection: ClientConnection) -> None:
        metadata = b"%d/%s" % (self._wish, _text(self.owned))
        name = "cooperative" if self.kind.cooperative else "range"
        values = {
            "group_id": self.kind.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self.kind.instance,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata}],
            "reason": None,
        }
        reply = await self.ask(connection, ApiKey.JOIN_GROUP, 9, values)
        code = int(reply.error_code)
        if code == Code.MEMBER_ID_REQUIRED:
            self.member_id = str(reply.member_id)
        elif code:
            self._refused(code)
        else:
            self.member_id, self._joined = str(reply.member_id), reply

    async def _sync(self, connection: ClientConnection) -> None:
        joined = self._joined
        parts = []
        if str(joined.leader) == self.member_id and not joined.skip_assignment:
            parts = [
                {"member_id": member_id, "assignment": _text(part)}
                for member_id, part in self._shares(joined.members).items()
            ]
        names = {"protocol_type": "consumer", "protocol_name": str(joined.protocol_name)}
        values = {**self._identity(), **names, "assignments": parts}
        reply = await self.ask(connection, ApiKey.SYNC_GROUP, 5, values)
        if int(reply.error_code):
            self._refused(int(reply.error_code))
            return
        self._part, self.sure = bytes(reply.assignment), True
        self._groups.synced(self.kind.group, int(joined.generation_id), self.seat, self._part)
        part = _numbers(self._part)
        revoked = self.owned - part
        self.owned = part
        if self.kind.cooperative and revoked:
            self._again()

    def _shares(self, members: Sequence[Any]) -> dict[str, set[int]]:
        """Return an assignment of the parts, in rotation over the members. A cooperative leader
        assigns no part that another member still has."""
        order = sorted(members, key=lambda one: str(one.group_instance_id or one.member_id))
        shares: dict[str, set[int]] = {str(one.member_id): set() for one in order}
        for part in range(PARTS):
            shares[str(order[part % len(order)].member_id)].add(part)
        if self.kind.cooperative:
            for one in order:
                held = _numbers(bytes(one.metadata).partition(b"/")[2])
                for member_id, share in shares.items():
                    if member_id != str(one.member_id):
                        share -= held
        return shares

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.kind.group,
            "generation_id": int(self._joined.generation_id),
            "member_id": self.member_id,
            "group_instance_id": self.kind.instance,
        }

    async def _heartbeat(self, connection: ClientConnection) -> None:
        reply = await self.ask(connection, ApiKey.HEARTBEAT, 4, self._identity())
        self.sure = not int(reply.error_code)
        if not self.sure:
            self._refused(int(reply.error_code))

    async def _commit(self, connection: ClientConnection) -> None:
        """Commit with the generation in the metadata. Several partitions at once give cleaners
        batches of which they may remove a part."""
        self._offset += 1
        generation = int(self._joined.generation_id)
        partitions = [
            partition
            for partition in range(COMMITTED_PARTITIONS)
            if partition == self.at.partition or self._rng.random() < 0.5
        ]
        codes = await self.commit(connection, partitions, generation)
        for code in sorted(codes - {Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION}):
            self._refused(code)

    async def _commit_late(self, connection: ClientConnection) -> None:
        """Send a commit of the previous generation late: it must have no effect, whatever the
        answer (NoStaleCommit)."""
        if self._former is not None:
            await self.commit(connection, [self.at.partition], self._former)

    async def commit(
        self, connection: ClientConnection, partitions: Iterable[int], generation: int
    ) -> set[int]:
        """Commit offsets with this generation. Return the error codes in the answer."""
        rows = commit_rows(partitions, self._offset, f"@{generation}")
        values = {
            "group_id": self.kind.group,
            "generation_id_or_member_epoch": generation,
            "member_id": self.member_id,
            "group_instance_id": self.kind.instance,
            "topics": [{"name": self.at.topic, "partitions": rows}],
        }
        reply = await self.ask(connection, ApiKey.OFFSET_COMMIT, 8, values)
        return {int(one.error_code) for one in reply.topics[0].partitions}

    async def _leave(self, connection: ClientConnection) -> None:
        one = {"member_id": self.member_id, "group_instance_id": self.kind.instance, "reason": None}
        values = {"group_id": self.kind.group, "members": [one]}
        await self.ask(connection, ApiKey.LEAVE_GROUP, 5, values)
        self._begin_anew()
