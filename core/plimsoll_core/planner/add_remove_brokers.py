"""The goals about brokers: add some, remove some, even out preferred leaders.

Source: the protocol's rules for adding and for removing brokers.
"""

from __future__ import annotations

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import NAMED_AT_MOST, brokers_text, counted, first_few
from plimsoll_core.planner.draft import PlanDraft
from plimsoll_core.planner.replica_layout import spread, vacancy
from plimsoll_core.planner.request import AddBrokers, RemoveBrokers
from plimsoll_core.planner.survey import Rows, Survey


def add(survey: Survey, goal: AddBrokers) -> PlanDraft | Refusal:
    """Return a draft that balances replicas and preferred leaders over all usable brokers. The new
    brokers have the fewest, so they are filled. Refuse if a new broker is not usable."""
    if missing := [broker for broker in sorted(goal.brokers) if broker not in survey.usable]:
        return Refusal(
            reason=Reason.BrokerIdNotRegistered,
            message=(
                f"No replicas can be given to {brokers_text(missing, NAMED_AT_MOST)} now. A broker"
                " gets replicas only if it has registered, runs and is not being drained. Start"
                " those that are down, and end the drain of the others."
            ),
        )
    rows = survey.rows()
    layout = survey.layout(rows, receivers=survey.usable, free=survey.free)
    bound = spread(layout, fewest_copies=True)
    survey.leadership(rows, free=survey.free).even_out()
    return PlanDraft(rows=rows, lower_bound=bound, evened=survey.usable, skipped=survey.skipped())


def remove(survey: Survey, goal: RemoveBrokers) -> PlanDraft | Refusal:
    """Return a draft that moves every replica off the removed brokers, except those of Explicit
    topics, and balances replicas and preferred leaders over the other usable brokers. Refuse if too
    few brokers would be left for a partition."""
    leaving = frozenset(goal.brokers)
    survivors = [broker for broker in survey.usable if broker not in leaving]
    rows = survey.rows()
    urgent = set()
    for p, row in enumerate(rows):
        if survey.free[p] and not leaving.isdisjoint(row):
            urgent.add(p)
            row[:] = [vacancy(n) if broker in leaving else broker for n, broker in enumerate(row)]
    if refusal := _too_few(survey, rows, survivors):
        return refusal
    layout = survey.layout(rows, receivers=survivors, free=survey.free)
    bound = spread(layout, fewest_copies=True)
    leadership = survey.leadership(rows, free=survey.free, receivers=survivors)
    for p in sorted(urgent):
        leadership.succeed(p, survey.home[p])
    leadership.even_out()
    return PlanDraft(
        rows=rows,
        lower_bound=bound,
        urgent=frozenset(urgent),
        evened=survivors,
        skipped=survey.skipped(leaving),
    )


def prefer(survey: Survey) -> PlanDraft:
    """Return a draft that balances preferred leaders by the order of replicas; no data moves."""
    rows = survey.rows()
    survey.leadership(rows, free=survey.free).even_out()
    return PlanDraft(rows=rows, evened=survey.usable, data_moves=False, skipped=survey.skipped())


def _too_few(survey: Survey, rows: Rows, survivors: list[BrokerId]) -> Refusal | None:
    """Refuse if a partition that has to move has more replicas than there would be brokers left for
    it."""
    short: dict[str, int] = {}
    for p, row in enumerate(rows):
        if row and min(row) < 0 and len(row) > len({*survivors, *(b for b in row if b >= 0)}):
            topic = survey.topics[survey.topic_of[p]].name
            short[topic] = max(len(row), short.get(topic, 0))
    if not short:
        return None
    topics = first_few([f"{topic} ({factor})" for topic, factor in short.items()])
    return Refusal(
        reason=Reason.NotEnoughBrokers,
        message=(
            f"Only {counted(len(survivors), 'broker')} would be left to hold replicas, fewer than"
            f" the replication factor of topic {topics}. Add brokers first, or lower the"
            " replication factor."
        ),
    )
