"""Decides whether voluntary work may begin now. The one list of voluntary work.

Called inside decisions, and by reconcilers before steps that need no decision. Work is voluntary if
the cluster serves without it. It waits outside the LogCluster's maintenance windows, while the
cluster is paused, and while it hibernates; `VoluntaryWork` says which work waits for what. A step
that has begun ends; only the next one waits. Elections, fencing, ISR changes, the replacement of
dead brokers and the withdrawal of rights are not voluntary and never ask. The operator evaluates
schedules and time zones (`Hours`); this module reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from plimsoll_core.errors import Reason, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The hours at one instant. `paused`, `hibernated`: as the LogCluster's spec states them.
    `window_open`: True if no window is declared, or one is open. `opens`: completes "until" with
    the beginning of the next window, or with what must be corrected first."""

    paused: bool = False
    hibernated: bool = False
    window_open: bool = True
    opens: str = ""


ALWAYS = Hours()


class VoluntaryWork(Enum):
    """Kinds of voluntary work. The value is True if the work waits for a maintenance window, and
    the words by which a refusal names the work. All of it waits while the cluster is paused or
    hibernates."""

    RESTART = (True, "restarts for another template, release or certificate")
    DRAIN = (True, "moves off brokers that leave, while these serve")
    REMOVE_BROKER = (True, "the removal of brokers that were emptied")
    FILL = (True, "rebalances that the operator begins by itself")
    FINALIZE = (True, "the finalisation of a newer metadata version")
    ADD_BROKER = (False, "the start of more brokers")
    MOVE = (False, "moves and rebalances that a person asked for")
    INTERNAL_REPLICAS = (False, "the creation of missing replicas of internal topics")
    DELETE_TOPIC = (False, "the deletion of a topic's data after its grace period")
    DRILL = (False, "faults that a Verification injects")

    @property
    def waits_for_window(self) -> bool:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class HourHold:
    """The reason why the voluntary work `work` waits. `until`: completes a sentence after
    "until"."""

    reason: Reason
    work: VoluntaryWork
    until: str

    @property
    def refusal(self) -> Refusal:
        return Refusal(
            reason=self.reason,
            message=f"The LogCluster holds back {self.work.words} until {self.until}.",
        )


def hour_hold(hours: Hours, work: VoluntaryWork, *, urgent: bool = False) -> HourHold | None:
    """Return why `work` may not begin at these hours, or None if it may. `urgent`: True if a broker
    that is not active is repaired or replaced by it, for which no window is waited for."""
    if hours.hibernated:
        return HourHold(
            reason=Reason.ClusterHibernates, work=work, until="spec.hibernated is false"
        )
    if hours.paused:
        return HourHold(reason=Reason.ClusterPaused, work=work, until="spec.paused is false")
    if work.waits_for_window and not hours.window_open and not urgent:
        return HourHold(reason=Reason.OutsideMaintenanceWindow, work=work, until=hours.opens)
    return None
