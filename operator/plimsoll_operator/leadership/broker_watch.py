"""Refreshes the LogBroker statuses of a led cluster: at once after a change of state, and in turn
for figures such as sizes and lags.

One of the tasks of a term. Figures change all the time, so at most two objects a second are written
for them, however many brokers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from plimsoll_core.cluster.records import Record
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import LOG_BROKERS
from plimsoll_operator.reconcile.effects import TermEffects
from plimsoll_operator.reconcile.logbroker.logbroker_status import OF_SEVERAL, brokers_of
from plimsoll_operator.reconcile.logbroker.reconcile import all_work, wanted
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.status.status_writer import Target

ROUND_SECONDS_MIN = 10.0
APART_SECONDS = 0.5


async def look_at_brokers(
    term: Term,
    refresh: Callable[[Target], None],
    look: Callable[[str, Target], AbstractContextManager[None]],
) -> None:
    """Read the figures (sizes, lags) of each broker in turn and mark its LogBroker for a status
    write, until cancelled. `refresh`: marks a status of which only figures changed. `look`: a
    context for the work on one broker, which confines bugs to it."""
    await term.controller.wait_active()
    memory = brokers_of(term)
    while True:
        ids = [*wanted(term).values()]
        for broker_id in ids:
            target = target_of(term, broker_id)
            with look(f"the figures of broker {broker_id}", target):
                memory.look(term, broker_id)
                refresh(target)
            await asyncio.sleep(APART_SECONDS)
        await asyncio.sleep(max(APART_SECONDS, ROUND_SECONDS_MIN - APART_SECONDS * len(ids)))


def brokers_changed(effects: TermEffects, records: Iterable[Record], now_ms: int) -> None:
    """Update LogBrokers after a commit of `records`: mark the LogBroker of each broker with a new
    state for a status write. If brokers joined, left or were asked to leave, also queue the
    reconciliation of all LogBrokers."""
    term, records = effects.term, tuple(records)
    memory = brokers_of(term)
    for broker_id in memory.happened(records, now_ms):
        memory.look(term, broker_id)
        effects.mark(target_of(term, broker_id))
    if any(isinstance(record, OF_SEVERAL) for record in records):
        memory.forget_others(term.image)
        for work in all_work(term):
            effects.add(work)


def target_of(term: Term, broker_id: BrokerId) -> Target:
    namespace, name = term.key
    return Target(LOG_BROKERS, namespace, labels.log_broker(name, broker_id))
