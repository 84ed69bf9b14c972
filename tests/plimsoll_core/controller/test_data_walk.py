"""Random walks with data: whoever may lead holds everything that was committed.

Logs are lists of (leader epoch, number); replication and the leader's commit rule are the shortest
possible model of the replica's rules, the controller is the real one.  Checks I1, I2 and I16.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.controller.partitions.unclean_recovery import CAUSES, how_elected
from plimsoll_core.messages.elections import ElectLeaders, NamedLeader, NameLeaders
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget
from plimsoll_core.messages.requests import BrokerProvenDead, Tick

BROKERS = 4
Entry = tuple[int, int]


class Data:
    """One partition's logs on every broker, and what has been committed of them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.logs: dict[int, list[Entry]] = {b: [] for b in range(BROKERS)}
        self.running = set(range(BROKERS))
        self.committed: list[Entry] = []
        self.term = -1
        self.term_start = 0
        self.fetched: set[int] = set()
        self.written = 0
        self.lossy_open: set[int] = set()
        self.lossy_max = 0
        self.risked = False
        self.unclean = {True: 0, False: 0}
        self._commit_record = world.commit
        world.commit = self.record

    def record(self, record: Any) -> None:
        """Every record comes through here: ghosts of who lost data, and who was elected how."""
        before, full = self.world.p(), bool(self.world.full)
        self._commit_record(record)
        after = self.world.p()
        if after.leader is not None and record.cause.startswith("recovery"):
            bearable = before.effective_min_isr - 1 if full else 0
            balanced = how_elected(record.cause) == CAUSES["Balanced"]
            self.recovered(after.leader, balanced and self.lossy_max <= bearable)
            self.risked |= not balanced and after.leader not in self.running
        # A dead member of the ELR may be elected until it is fenced; that brings nothing back.
        self.lossy_open -= (set(after.isr) - set(before.isr)) & self.running
        self.note_losses()

    def note_losses(self) -> None:
        """Max abs(lossy_open) since abs(isr) was last ≥ m."""
        p = self.world.p()
        kept = 0 if len(p.isr) >= p.effective_min_isr else self.lossy_max
        self.lossy_max = max(kept, len(self.lossy_open))

    def recovered(self, leader: int, lossless: bool) -> None:
        """I16: balanced, lossy_max ≤ (m−1 if full else 0) => lost = {}; G is cut to the leader.

        One that died after it had told of its log never acts, and is elected over.
        """
        if leader not in self.running:
            return
        held = common(self.committed, self.logs[leader])
        self.unclean[lossless and not self.risked] += 1
        if lossless and not self.risked:
            assert held == len(self.committed), f"{leader} lacks what was committed"
        self.committed = self.committed[:held]

    def leader(self) -> int | None:
        """The leader, if its process runs; it notices the beginning of its term."""
        p = self.world.p()
        if p.leader is None or p.leader not in self.running:
            return None
        if p.leader_epoch != self.term:
            self.term = p.leader_epoch
            self.term_start = len(self.logs[p.leader])
            self.fetched = {p.leader}
        return p.leader

    def produce(self, leader: int, count: int) -> None:
        for _ in range(count):
            self.written += 1
            self.logs[leader].append((self.term, self.written))

    def fetch(self, leader: int, follower: int, at_most: int) -> None:
        """Cut what differs, then copy a few."""
        theirs = self.logs[leader]
        same = common(self.logs[follower], theirs)
        self.logs[follower] = theirs[: same + at_most]
        self.fetched.add(follower)

    def commit(self, leader: int) -> None:
        """REQUIRE abs(committed isr) ≥ m; candidate = min of the members' ends, heard this term."""
        p = self.world.p()
        if len(p.isr) < p.effective_min_isr or not set(p.isr) <= self.fetched:
            return
        end = min(len(self.logs[member]) for member in p.isr)
        if end > len(self.committed):
            self.committed = self.logs[leader][:end]

    def join(self, leader: int, follower: int) -> None:
        """REQUIRE f.leo ≥ hw ∧ f.leo ≥ leso ∧ fetched in this term."""
        p = self.world.p()
        end = len(self.logs[follower])
        if follower in p.isr or follower not in self.fetched or follower not in p.replicas:
            return
        if end >= max(len(self.committed), self.term_start):
            self.world.propose([*p.isr, follower])

    def leave(self, leader: int, follower: int) -> None:
        p = self.world.p()
        if follower in p.isr and follower != leader:
            self.world.propose([member for member in p.isr if member != follower])

    def reassign(self, target: tuple[int, ...] | None) -> None:
        """Begin, replace or cancel a move."""
        wanted = PartitionTarget(topic="orders", index=0, replicas=target)
        self.world.ask(AlterReassignments(targets=(wanted,)))

    def drop(self) -> None:
        """Who is no replica any more deletes its copy; one that is down does so when it is back,
        unless it is a replica again by then."""
        for broker in sorted(set(range(BROKERS)) - set(self.world.p().replicas)):
            self.lossy_open.discard(broker)
            self.fetched.discard(broker)
            if broker in self.running:
                self.logs[broker] = []

    def check(self) -> None:
        p = self.world.p()
        end = len(self.committed)
        for member in {*p.isr, *p.elr} & self.running:
            held = self.logs[member][:end]
            assert held == self.committed, f"{member} may lead without what was committed: {p}"


def common(ours: list[Entry], theirs: list[Entry]) -> int:
    """How many entries two logs share."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def lead(data: Data, kind: int, broker: int, bits: int) -> None:
    leader = data.leader()
    if leader is None:
        return
    if kind == 0:
        data.produce(leader, 1 + bits % 5)
    elif broker != leader and broker in data.running and broker in data.world.p().replicas:
        data.fetch(leader, broker, 9 if bits % 2 else bits % 4)
        if kind == 1:
            data.join(leader, broker)
    if kind == 2 and broker != leader:
        data.leave(leader, broker)
    data.commit(leader)


def kill(data: Data, broker: int, bits: int) -> None:
    """With or without its page cache, with or without anybody noticing."""
    data.running.discard(broker)
    data.fetched.discard(broker)
    if bits % 2 and len(data.logs[broker]) > bits % 5:
        data.logs[broker] = data.logs[broker][: bits % 5]
        data.lossy_open.add(broker)
        data.note_losses()
    if bits % 3 == 0:
        epoch = data.world.image.brokers[broker].broker_epoch
        data.world.ask(BrokerProvenDead(broker_id=broker, broker_epoch=epoch, evidence="e"))


def restart(data: Data, broker: int, bits: int) -> None:
    """Cleanly if the controller lets it go in time, else as if killed (without loss)."""
    world = data.world
    clean = False
    if broker in data.running:
        for other in sorted(data.running - {broker}):
            world.beat(other)
        world.beat(broker, want_shutdown=True)
        for other in sorted(data.running - {broker}):
            world.beat(other)
        clean = world.beat(broker, want_shutdown=True).should_shut_down and bits % 4 > 0
    data.running.discard(broker)
    data.fetched.discard(broker)
    world.start(broker, clean=clean)
    data.running.add(broker)


def tell(data: Data, broker: int, bits: int) -> None:
    """What running brokers report of a partition without a leader: all of them, or one."""
    for other in sorted(data.running if bits % 2 else data.running & {broker}):
        if data.world.p().leader is None:
            log = data.logs[other]
            end = (log[-1][0] if log else None, len(log))
            data.world.tell(other, end, stale=int(bits % 8 == 7))


def wait(data: Data, broker: int, bits: int) -> None:
    """All brokers but one send heartbeats meanwhile."""
    data.world.now_ms += bits * 100
    for other in sorted(data.running - {broker}):
        data.world.beat(other)
    data.world.ask(Tick())


def name_leader(data: Data, broker: int, bits: int) -> None:
    named = NamedLeader(partition=0, leader=broker, at_leader_epoch=data.world.p().leader_epoch)
    holder = data.world.declaration().object
    data.world.ask(NameLeaders(object=holder, leaders=(named,)))


def configure(data: Data, broker: int, bits: int) -> None:
    strategy = ("Balanced", "Balanced", "Proactive", "Manual")[bits % 4]
    data.world.declare(
        min_isr=data.world.p().min_isr,
        replication_factor=factor(data),
        configs={UNCLEAN_RECOVERY: strategy},
    )


def lower_or_raise(data: Data, broker: int, bits: int) -> None:
    wanted = factor(data)
    data.world.declare(min_isr=1 + bits % min(3, wanted), replication_factor=wanted)


def factor(data: Data) -> int:
    return data.world.image.topics[data.world.p().topic_id].replication_factor


def reassign(data: Data, broker: int, bits: int) -> None:
    """By a client, to any brokers in any order, or back; or by the object, to another factor."""
    if bits % 7 == 0:
        data.reassign(None)
    elif bits % 7 == 1:
        wanted = 1 + bits % BROKERS
        data.world.declare(min_isr=min(data.world.p().min_isr, wanted), replication_factor=wanted)
    else:
        order = [(broker + bits * step) % BROKERS for step in range(BROKERS)]
        row = list(dict.fromkeys([*order, *range(BROKERS)]))
        data.reassign(tuple(row[: factor(data)]))


STEPS: tuple[Callable[[Data, int, int], None], ...] = (
    kill,
    restart,
    wait,
    lambda data, broker, bits: data.world.take_over(),
    lower_or_raise,
    tell,
    configure,
    lambda data, broker, bits: data.world.ask(ElectLeaders(kind="Preferred")),
    name_leader,
    reassign,
)


def step(data: Data, move: tuple[int, int, int]) -> None:
    kind, broker, bits = move
    if kind <= 2:
        lead(data, kind, broker, bits)
    else:
        STEPS[kind - 3](data, broker, bits)
    data.drop()


MOVES = st.tuples(
    st.sampled_from([0, 0, 1, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 12, 12]),
    st.integers(0, BROKERS - 1),
    st.integers(0, 99),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(moves=st.lists(MOVES, min_size=40, max_size=120))
def test_isr_and_elr_members_hold_every_committed_record(
    new_world: Callable[..., Any], moves: list[tuple[int, int, int]]
) -> None:
    """I1, I2: for r in isr ∪ elr if run(r): prefix(r.log, true_hw) = G."""
    world = new_world(BROKERS)
    world.declare(strategy="Explicit", assignment=((0, 1, 2),))
    data = Data(world)
    for move in moves:
        step(data, move)
        data.leader()
        data.check()
