"""What one run is like, drawn from its seed: sizes, settings, and which faults happen how often.

Each run leaves some faults out altogether (swarm testing): a rare combination is not drowned by
the common ones; others are about something (`themes`).  Everything that was drawn is printed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Literal

from plimsoll_sim.themes import THEMES

FAULTS: dict[str, int] = {
    # name: weight when it takes part at all
    "kill broker": 6,
    "stop broker": 4,
    "cut power of broker": 4,
    "cut power of all": 1,
    "crash at io": 4,
    "pause broker": 4,
    "disk full": 2,
    "disk broken": 1,
    "empty disk": 1,
    "old disk": 1,
    "cut brokers": 5,
    "cut broker from controllers": 5,
    "cut client": 3,
    "slow link": 4,
    "stall connection": 3,
    "stall broker": 2,
    "stall metadata": 2,
    "kill operator": 4,
    "stop operator": 2,
    "pause operator": 4,
    "operator loses api": 3,
    "api down": 2,
    "api hung": 2,
    "api flaky": 4,
    "step wall clock": 2,
    "slow disk": 2,
    "change retention": 2,
    "delete records": 3,
    "left behind": 1,
    "stranger": 2,
    "full amid a proposal": 1,
    "unflushed heir": 1,
    "recreate topic": 1,
    "change min isr": 3,
    "add partitions": 1,
    "start reassignment": 6,
    "end reassignment": 3,
    "change replication factor": 2,
    "start rebalance": 5,
    "end rebalance": 2,
    "pause rebalance": 2,
    "move replicas": 3,
    "cancel move": 2,
    "prefer leaders": 3,
    "rebirth": 2,
    "back and forth": 2,
    "unlucky heir": 2,
    "quiet stop": 1,
    "late letters": 2,
    "old marker": 1,
    "two terms": 2,
    "late reply": 1,
    "slow to tell": 1,
    "hasty cancel": 1,
    "waits through": 1,
    "overtaken": 2,
    "restore etcd": 1,
    "roll brokers": 5,
}
LOSSY = frozenset(
    {
        "cut power of broker",
        "cut power of all",
        "empty disk",
        "old disk",
        "old marker",
        "rebirth",
        "late letters",
        "slow to tell",
        "overtaken",
        "unflushed heir",
    }
)
RARE = frozenset({"restore etcd", "empty disk", "old disk", "old marker", "disk broken"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Times are virtual milliseconds.  Brokers are numbered from `first_broker` on.

    `burst`: how likely a fault comes right after another; `nervous`: how likely one comes right
    after a proposal or a commit; `at_once`: how many that last may do so at the same time.
    `chores_faster`: by how much the brokers' chores (retention, checkpoints) come more often.
    """

    theme: str = ""
    brokers: int
    first_broker: int = 0
    operators: int
    partitions: int
    replication_factor: int
    min_isr: int
    slots: int
    latency_us: tuple[int, int]
    api_latency_us: tuple[int, int] = (500, 5_000)
    lag_time_max_ms: int
    flap_wait_ms_max: int = 4_000
    slice_partitions_max: int
    segment_bytes: int
    flush_messages: int | None
    flush_ms: int | None = None
    retention_bytes: int | None = None
    retention_ms: int | None = None
    unclean_recovery: Literal["Balanced", "Proactive"] = "Balanced"
    chores_faster: int = 1
    on_controller_loss: Literal["KeepServing", "StopServing"] = "KeepServing"
    metadata_version: int | None = None
    producers: tuple[tuple[int, bool], ...]
    consumers: int
    think_ms: tuple[int, int]
    fault_gap_ms: int
    heal_ms: int
    burst: float = 0.0
    nervous: float = 0.0
    at_once: int = 100
    faults: tuple[tuple[str, int], ...]

    def lines(self) -> list[str]:
        return [f"  {field.name} = {getattr(self, field.name)!r}" for field in fields(self)]

    @property
    def broker_ids(self) -> range:
        return range(self.first_broker, self.first_broker + self.brokers)

    @property
    def lossless(self) -> bool:
        return not any(name in LOSSY for name, _ in self.faults)


def draw(rng: random.Random, theme: str | None = None) -> RunOptions:
    """Options for one run; `theme` None: any theme or none."""
    if theme is None:
        theme = rng.choice(("", *THEMES)) if rng.random() < 0.6 else ""
    options = _themed(rng, theme)
    return replace(options, metadata_version=rng.choice((None, None, 1)))


def _themed(rng: random.Random, theme: str) -> RunOptions:
    options = _anything(rng)
    if not theme:
        return options
    about = THEMES[theme]
    chosen = {name: rng.choice(values) for name, values in about.choices.items()}
    options = replace(options, theme=theme, faults=tuple(about.faults.items()), **chosen)
    factor = min(options.replication_factor, options.brokers)
    return replace(options, replication_factor=factor, min_isr=min(options.min_isr, factor))


def _anything(rng: random.Random) -> RunOptions:
    brokers = rng.choice((3, 3, 3, 4, 5))
    factor = rng.randint(2, min(brokers, 4)) if rng.random() < 0.9 else 1
    share = rng.choice((0.12, 0.25, 0.5))
    chosen = [
        (name, weight)
        for name, weight in FAULTS.items()
        if rng.random() < (0.06 if name in RARE else share)
    ]
    producers = tuple(
        rng.choice(((-1, True), (-1, True), (-1, False), (1, False), (0, False)))
        for _ in range(rng.randint(1, 3))
    )
    return RunOptions(
        brokers=brokers,
        operators=rng.choice((1, 2, 2)),
        partitions=rng.randint(1, 3),
        replication_factor=factor,
        min_isr=rng.randint(1, factor),
        slots=rng.choice((16, 32, 64)),
        latency_us=rng.choice(((50, 500), (100, 5_000), (1_000, 40_000), (5_000, 200_000))),
        api_latency_us=rng.choice(((500, 5_000), (500, 5_000), (20_000, 300_000))),
        lag_time_max_ms=rng.choice((1_000, 5_000, 30_000)),
        flap_wait_ms_max=rng.choice((1_000, 4_000)),
        slice_partitions_max=rng.choice((1, 2, 1_000, 1_000, 1_000)),
        segment_bytes=rng.choice((200, 1_000, 1_000_000)),
        flush_messages=rng.choice((None, None, None, 1, 3)),
        flush_ms=rng.choice((None, None, None, 200)),
        retention_bytes=rng.choice((None, None, None, 300, 1_000)),
        retention_ms=rng.choice((None, None, None, 2_000, 10_000)),
        unclean_recovery=rng.choice(("Balanced",) * 9 + ("Proactive",)),
        chores_faster=rng.choice((1, 1, 5, 20)),
        on_controller_loss="StopServing" if rng.random() < 0.3 else "KeepServing",
        producers=producers,
        consumers=rng.randint(0, 2),
        think_ms=rng.choice(((1, 50), (10, 500), (200, 2_000))),
        fault_gap_ms=rng.choice((400, 1_500, 4_000)),
        heal_ms=rng.choice((500, 2_000, 8_000)),
        burst=rng.choice((0.0, 0.3, 0.6)),
        nervous=rng.choice((0.0, 0.02, 0.1)),
        at_once=rng.choice((1, 2, 3, 100)),
        faults=tuple(chosen) or (("kill broker", 1),),
    )
