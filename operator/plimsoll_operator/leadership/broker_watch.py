"""Keeps the LogBrokers of a led cluster up to date: at once when a broker's state changes, and its
figures in turn.

One of the tasks of a term.  Figures differ whenever they are looked at; so at most two objects a
second are written for them, however many brokers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from plimsoll_core.cluster.records import Record
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import LOG_BROKERS
from plimsoll_operator.reconcile.logbroker.broker_memory import OF_SEVERAL, brokers_of
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
    """Until cancelled.  `refresh`: a status has other figures; that is not urgent.  Each broker is
    looked at within `look`."""
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


def brokers_changed(term: Term, records: Iterable[Record], now_ms: int) -> None:
    """After a commit: who came, went, or is to go."""
    memory, records = brokers_of(term), tuple(records)
    for broker_id in memory.happened(records, now_ms):
        memory.look(term, broker_id)
        term.mark(target_of(term, broker_id))
    if any(isinstance(record, OF_SEVERAL) for record in records):
        memory.forget_others(term.image)
        for work in all_work(term):
            term.add(work)


def target_of(term: Term, broker_id: BrokerId) -> Target:
    """A broker's object."""
    namespace, name = term.key
    return Target(LOG_BROKERS, namespace, labels.log_broker(name, broker_id))
