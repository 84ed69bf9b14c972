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

Fault = Literal["KillBroker", "PauseBroker", "PreferLeaders", "Reassign", "RollAll"]
StepResult = Literal["Begun", "Injected", "Refused", "Unknown"]
PAUSE_DEFAULT = "10s"
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
    """One fault. KillBroker and PauseBroker (plimsoll local alone) need a target, Reassign needs
    target.leaderOf: that partition leaves its leader. PreferLeaders elects preferred leaders,
    RollAll restarts all brokers, one safe restart at a time."""

    at: Annotated[Duration, described("Time since the first acknowledgement, such as 30s.")]
    fault: Fault
    target: DrillTarget | None = None
    for_: Annotated[Duration | None, described("Length of a pause; default 10s.")] = msgspec.field(
        name="for", default=None
    )


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
    """The outcome of one fault."""

    fault: Short
    time: Time | None = None
    result: Short = ""
    message: Sentence = ""


class StepRecord(Api, frozen=True, kw_only=True):
    """The outcome of the drill's step with this number, from 0. atMs: when it was noted, by the API
    server's clock; result: Begun until the outcome is known."""

    number: Annotated[int, Meta(ge=0, le=STEPS_MAX - 1)]
    fault: Short
    at_ms: _Milliseconds
    result: StepResult
    message: Sentence = ""


class DrillRecord(Api, omit_defaults=False, frozen=True, kw_only=True):
    """By which the operator injects each fault at most once. beganMs: when it first saw an
    acknowledgement, by the API server's clock."""

    began_ms: _Milliseconds
    steps: Annotated[tuple[StepRecord, ...], Meta(max_length=STEPS_MAX)] = ()


DRILL_RULES = (
    (
        "has(self.produce) || (!has(self.drill) && !has(self.budget))",
        "drill and budget need produce: an audit writes nothing.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, !(s.fault in ['KillBroker', 'PauseBroker']) || "
        "(has(s.target) && has(s.target.broker) != has(s.target.leaderOf)))",
        "drill: KillBroker and PauseBroker need target.broker or target.leaderOf.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, s.fault != 'Reassign' || "
        "(has(s.target) && has(s.target.leaderOf) && !has(s.target.broker)))",
        "drill: Reassign needs target.leaderOf, the partition that moves.",
    ),
    (
        "!has(self.drill) || self.drill.all(s, !(s.fault in ['PreferLeaders', 'RollAll']) || "
        "!has(s.target))",
        "drill: PreferLeaders and RollAll concern all brokers and have no target.",
    ),
)
