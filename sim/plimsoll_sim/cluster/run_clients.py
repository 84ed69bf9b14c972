"""The producers, consumers and committers that a run begins with, from its options."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.checkers.groups import GroupChecker
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.hosts.clients import Client, Consumer, Habits, Producer
from plimsoll_sim.hosts.committers import GroupHoarder, OffsetCommitter


class Witnesses(NamedTuple):
    """The checkers that are told what clients sent and were answered."""

    clients: ClientChecker
    groups: GroupChecker


def clients_of(
    options: RunOptions, habits: Habits, stream: Callable[[], random.Random], told: Witnesses
) -> Iterator[Client]:
    """`habits`: the settings that they share; `stream`: makes each one's dice."""
    for number, (acks, idempotent) in enumerate(options.producers):
        mine = _of(habits, f"producer-{number}", number % options.partitions)
        mine = replace(mine, acks=acks, idempotent=idempotent, keyed=options.compacted)
        yield Producer(mine, stream(), told.clients)
    for number in range(options.consumers):
        mine = _of(habits, f"consumer-{number}", number % options.partitions)
        yield Consumer(mine, stream(), told.clients)
    for number in range(options.committers):
        mine = _of(habits, f"committer-{number}", number % options.partitions)
        mine = replace(mine, deletes_groups=options.deletes_groups, kept_ms=options.offsets_kept_ms)
        yield OffsetCommitter(mine, stream(), told.clients, told.groups)
    for number in range(options.hoarders):
        mine = _of(habits, f"hoarder-{number}", number % options.partitions)
        hoarder = GroupHoarder(mine, stream(), told.clients)
        if options.hoarders == 1:
            hoarder.pause_s = 0.002
        yield hoarder


def _of(habits: Habits, name: str, partition: int) -> Habits:
    return replace(habits, name=name, partition=partition)
