"""The fields of a `Verification` about a drill: faults that the operator injects while the driver
writes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.durations import Duration
from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    Sentence,
    Short,
    Time,
    TopicName,
    described,
)

Fault = Literal[
    "CutApiServer",
    "CutLinks",
    "Evict",
    "FillDisk",
    "KillBroker",
    "KillOperator",
    "LoseVolume",
    "PauseBroker",
    "PreferLeaders",
    "Reassign",
    "RollAll",
    "SlowLinks",
]
StepResult = Literal["Begun", "Injected", "Refused", "Unknown"]
FOR_DEFAULT = "10s"
FOR_SECONDS_MAX = 60
"""The longest time in seconds that a fault lasts, except PauseBroker."""
STEPS_MAX = 20
_Milliseconds = Annotated[int, Meta(ge=0, le=253_402_300_799_000)]
"""Milliseconds since 1970, before the year 10000."""


class DrillPartition(Api, frozen=True, kw_only=True):
    """A partition, by its topic's name and its index."""

    topic: TopicName
    partition: Annotated[int, Meta(ge=0, le=9_999)]


class DrillTarget(Api, frozen=True, kw_only=True):
    """The broker of a fault: its id, or the leader of a partition at the time of the fault."""

    broker: BrokerNumber | None = None
    leader_of: DrillPartition | None = None


class DrillStep(Api, frozen=True, kw_only=True):
    """One fault. Faults of one broker need a target: KillBroker, PauseBroker (plimsoll local only),
    Evict (as kubectl drain does), LoseVolume (its claim and pod are deleted), CutLinks (to brokers
    and controllers), SlowLinks (0.5 s, to brokers), FillDisk. Reassign needs target.leaderOf: that
    partition leaves its leader. The others have no target: PreferLeaders elects preferred leaders,
    RollAll restarts all brokers, one safe restart at a time, KillOperator kills the leading
    operator, CutApiServer keeps it from the API server."""

    at: Annotated[Duration, described("Time since the first acknowledgement, such as 30s.")]
    fault: Fault
    target: DrillTarget | None = None
    for_: Annotated[
        Duration | None,
        described("For how long a fault lasts that ends by itself; default 10s, at most 60s."),
    ] = msgspec.field(name="for", default=None)


Drill = Annotated[
    tuple[DrillStep, ...],
    Meta(
        min_length=1,
        max_length=STEPS_MAX,
        description="Faults, in the order of their times. The LogCluster must state "
        "maintenance.allowDrills: true.",
    ),
]


class DrillMark(Api, frozen=True, kw_only=True):
    """The outcome of one fault. until: when it ends, if it lasts."""

    fault: Short
    time: Time | None = None
    until: Time | None = None
    result: Short = ""
    message: Sentence = ""


class StepRecord(Api, frozen=True, kw_only=True):
    """The outcome of the drill's step with this number, from 0. atMs: when it was noted, by the API
    server's clock; untilMs: when a fault that lasts ends, by the same clock; result: Begun until
    the outcome is known; epoch: the controller epoch of the operator that noted it."""

    number: Annotated[int, Meta(ge=0, le=STEPS_MAX - 1)]
    fault: Short
    at_ms: _Milliseconds
    result: StepResult
    message: Sentence = ""
    until_ms: _Milliseconds | None = None
    epoch: Annotated[int, Meta(ge=0)] = 0


class DrillRecord(Api, omit_defaults=False, frozen=True, kw_only=True):
    """By which the operator injects each fault at most once. beganMs: when it first saw an
    acknowledgement, by the API server's clock."""

    began_ms: _Milliseconds
    steps: Annotated[tuple[StepRecord, ...], Meta(max_length=STEPS_MAX)] = ()


DRILL_RULES = (
    (
        "has(self.produce) || (!has(self.drill) && !has(self.budget))",
        "drill and budget are allowed only with produce: an audit writes no records.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, !(s.fault in ['CutLinks', 'Evict', 'FillDisk', "
        "'KillBroker', 'LoseVolume', 'PauseBroker', 'SlowLinks']) || "
        "(has(s.target) && has(s.target.broker) != has(s.target.leaderOf)))",
        "drill: a fault of one broker needs exactly one of target.broker and target.leaderOf.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, s.fault != 'Reassign' || "
        "(has(s.target) && has(s.target.leaderOf) && !has(s.target.broker)))",
        "drill: Reassign needs target.leaderOf, the partition that moves.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, !(s.fault in ['CutApiServer', 'KillOperator', "
        "'PreferLeaders', 'RollAll']) || !has(s.target))",
        "drill: CutApiServer, KillOperator, PreferLeaders and RollAll have no target.",
    ),
)
