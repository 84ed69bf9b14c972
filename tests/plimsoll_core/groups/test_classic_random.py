"""Random members, clocks, refusals and failovers: the invariants hold after every step, and in the
end every group is stable and everybody who lives has a part."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.groups.classic_members import SESSION_MS, a_join
from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel, an_image

from plimsoll_core.errors import Code
from plimsoll_core.groups import membership as m
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.invariants import ToldGenerations

MEMBERS = 4
RETRIES = frozenset({14, 15, 16, 27})


class Client:
    """A member as a real client is one: it does what its last answer says."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        # Every other one is static.
        self.instance = f"s{number}" if number % 2 else None
        self.member_id = ""
        self.joined: m.GroupJoined | None = None
        self.part: bytes | None = None
        self.waits: tuple[object, m.JoinGroup | m.SyncGroup] | None = None
        self.topics = 0

    def restart(self) -> None:
        self.member_id, self.joined, self.part, self.waits = "", None, None, None

    def close(self) -> None:
        """Its connection is gone while it waits."""
        if self.waits is not None:
            op = m.CloseRequest(group_id="g", token=self.waits[0])
            self.world.model.submit(op, None)
            self.waits = self.joined = self.part = None

    def act(self, deed: str) -> None:
        """`deed` counts once it has its part."""
        if self.waits is not None:
            self.hear()
        elif self.joined is None:
            protocols = (("sticky", b"%d" % self.topics), ("range", b""))
            self.ask(a_join(self.member_id, self.instance, protocols=protocols))
        elif self.part is None:
            self.ask(self.sync(self.joined))
        elif deed == "change":
            self.topics += 1
            self.joined = self.part = None
        elif deed == "leave":
            leaver = m.Leaver(self.member_id, self.instance)
            self.world.model.asked(m.LeaveGroup(group_id="g", members=(leaver,)))
            self.restart()
        else:
            self.stay(self.joined, deed)

    def sync(self, joined: m.GroupJoined) -> m.SyncGroup:
        parts: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == self.member_id and not joined.skip_assignment:
            number = next(self.world.numbers)
            parts = tuple(
                (one.member_id, f"{number}:{index}".encode())
                for index, one in enumerate(joined.members)
            )
        return m.SyncGroup(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation=joined.generation,
            assignments=parts,
        )

    def ask(self, op: m.JoinGroup | m.SyncGroup) -> None:
        self.waits = (self.world.model.asked(op), op)
        self.hear()

    def hear(self) -> None:
        assert self.waits is not None
        token, op = self.waits
        answer = self.world.model.answer(token)
        if answer is None:
            return
        self.waits = None
        match answer:
            case m.MemberIdGiven(member_id):
                self.member_id = member_id
            case m.GroupJoined():
                self.member_id, self.joined = answer.member_id, answer
            case m.GroupSynced():
                assert isinstance(op, m.SyncGroup)
                self.part = answer.assignment
                self.world.told(self, op, answer.assignment)
            case _:
                self.refused(answer)

    def refused(self, code: object) -> None:
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            self.member_id = ""
        elif code not in RETRIES and code is not Code.ILLEGAL_GENERATION:
            raise AssertionError(f"a member heard {code!r}")
        self.joined = self.part = None

    def stay(self, joined: m.GroupJoined, deed: str) -> None:
        op: Any = m.MemberHeartbeat(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation=joined.generation,
        )
        if deed == "commit":
            row = o.PartitionOffset("orders", 0, 1, -1, f"@{joined.generation}")
            op = o.CommitOffsets(
                group_id="g",
                member_id=self.member_id,
                group_instance_id=self.instance,
                generation=joined.generation,
                offsets=(row,),
            )
        answer = self.world.model.ask(op)
        if isinstance(answer, Code) and answer not in (14, 15, 16):
            self.refused(answer)


class World:
    """Clients, one coordinator after another, and what was told."""

    def __init__(self) -> None:
        self.model = CoordinatorModel(an_image(orders=1))
        self.numbers = count()
        self.generations = ToldGenerations()
        self.clients = [Client(self, number) for number in range(MEMBERS)]

    def told(self, client: Client, op: m.SyncGroup, part: bytes) -> None:
        wrong: list[str] = []
        if op.assignments:
            accepted = self.accepted(op)
            if accepted is not None:
                wrong += self.generations.sent("g", op.generation, accepted)
        seat = client.instance or client.member_id
        wrong += self.generations.told("g", op.generation, seat, part)
        assert wrong == []

    def accepted(self, op: m.SyncGroup) -> dict[str, bytes] | None:
        """The leader's assignments by seat, if they were not sent to a group that had some."""
        stored = self.model.turn.state.groups["g"].stored
        assert stored is not None
        # Not as clients know it: one that comes back hears its new id after its leader does.
        seats = {one.member_id: one.group_instance_id or one.member_id for one in stored.members}
        parts = {seats.get(member, member): part for member, part in op.assignments}
        first = next(iter(op.assignments))[1].split(b":")[0]
        mine = any(one.assignment.startswith(first + b":") for one in stored.members)
        return parts if mine and stored.generation == op.generation else None

    def do(self, deed: str, who: int, ms: int) -> None:
        client = self.clients[who]
        match deed:
            case "tick":
                self.model.advance(ms)
            case "failover":
                self.fail_over()
            case "refuse":
                self.model.refuses = Code(ms % 2 and Code.COORDINATOR_NOT_AVAILABLE)
            case "hold":
                self.model.holds = True
            case "commit-late":
                self.model.holds = False
                self.model.commit(Code(ms % 2 and Code.COORDINATOR_NOT_AVAILABLE))
            case "close":
                client.close()
            case "restart":
                client.restart()
            case "round":
                for one in self.clients:
                    one.act("stay")
            case _:
                client.act(deed)

    def fail_over(self) -> None:
        self.model.fail_over()
        for client in self.clients:
            if client.waits is not None and self.model.answer(client.waits[0]) is None:
                client.waits = client.joined = client.part = None

    def settle(self) -> None:
        """Everything goes well from now on."""
        self.model.refuses, self.model.holds = Code.NONE, False
        self.model.commit()
        for _ in range(100):
            for client in self.clients:
                client.act("stay")
            self.model.advance(SESSION_MS // 5)
            if self.settled():
                return
        raise AssertionError([vars(client) for client in self.clients])

    def settled(self) -> bool:
        stored = self.model.turn.state.groups["g"].stored
        if stored is None or len(stored.members) != MEMBERS:
            return False
        return all(
            client.part is not None
            and client.joined is not None
            and client.joined.generation == stored.generation
            for client in self.clients
        )


DEEDS = st.sampled_from(
    ["stay"] * 5
    + ["round"] * 15
    + ["commit"] * 5
    + ["tick"] * 6
    + ["change", "leave", "failover", "refuse", "hold", "commit-late", "close", "restart"]
)
STEPS = st.lists(
    st.tuples(DEEDS, st.integers(0, MEMBERS - 1), st.integers(1, 12_000)), max_size=120
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_random_members_never_see_one_generation_twice(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for deed, who, ms in steps:
        world.do(deed, who, ms)
    world.settle()
