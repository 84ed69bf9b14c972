"""Builds the brokers, operators and clients with which a run begins, from its options."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from msgspec import structs

from plimsoll_core.controller.kernel.settings import InternalTopic, Settings
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.moves import AlterReassignments
from plimsoll_core.messages.requests import CreateTopics
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.messages.topics import TopicChange
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.checkers.coordinated import CoordinatedChecker
from plimsoll_sim.checkers.groups import GroupChecker
from plimsoll_sim.checkers.transactions import TransactionChecker
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.specs import cleaning_configs
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.hosts.brokers import BrokerEnvironment, BrokerHost
from plimsoll_sim.hosts.clients import Client, Consumer, Habits, Producer
from plimsoll_sim.hosts.committed_readers import CommittedReader
from plimsoll_sim.hosts.committers import GroupHoarder, OffsetCommitter
from plimsoll_sim.hosts.operators import OperatorContext, OperatorHost
from plimsoll_sim.hosts.processing_clients import ProcessingClient
from plimsoll_sim.hosts.transaction_writers import TransactionWriter, WriterPlan
from plimsoll_sim.hosts.transactional_clients import TransactionPlan


def broker_hosts(
    options: RunOptions, cluster_id: UUID, around: BrokerEnvironment
) -> dict[int, BrokerHost]:
    """Return the machines by broker id; no broker runs yet."""
    configs = _broker_configs(options)
    hosts = {n: BrokerHost(n, cluster_id, dict(configs), around) for n in options.broker_ids}
    for host in hosts.values():
        host.on_controller_loss = options.on_controller_loss
        host.transactions = options.coordinated > 0
        host.takes_pushes = options.takes_pushes
    return hosts


def _broker_configs(options: RunOptions) -> dict[str, str | int | bool]:
    configs: dict[str, str | int | bool] = {
        "replica.lag.time.max.ms": options.lag_time_max_ms,
        "log.segment.bytes": options.segment_bytes,
        "group.min.session.timeout.ms": 1_000,
        "group.initial.rebalance.delay.ms": 500,
        # A clock that is a day behind must not refuse what is written for the rest of a run.
        "log.message.timestamp.after.max.ms": 2**63 - 1,
    }
    drawn = {
        "log.flush.interval.messages": options.flush_messages,
        "log.flush.interval.ms": options.flush_ms,
        "log.retention.bytes": options.retention_bytes,
        "log.retention.ms": options.retention_ms,
    }
    configs |= {name: value for name, value in drawn.items() if value is not None}
    return configs | cleaning_configs(options)


def operator_hosts(options: RunOptions, around: OperatorContext) -> list[OperatorHost]:
    """Return the machines of the operators; no operator runs yet."""
    return [OperatorHost(n, around) for n in range(options.operators)]


def settings_of(options: RunOptions) -> Settings:
    """Return the controllers' settings."""
    return Settings(
        slice_partitions_max=options.slice_partitions_max,
        flap_wait_ms_max=options.flap_wait_ms_max,
        target_lost_ms=10_000,
        transactions_topic=InternalTopic(partitions=2, segment_bytes=options.segment_bytes),
    )


class Witnesses(NamedTuple):
    """The checkers to which clients report their requests and answers."""

    clients: ClientChecker
    groups: GroupChecker
    transactions: TransactionChecker
    coordinated: CoordinatedChecker


def clients_of(
    options: RunOptions, habits: Habits, stream: Callable[[], random.Random], told: Witnesses
) -> Iterator[Client]:
    """Yield the clients of a run. `habits`: settings that they share; `stream`: returns a random
    generator of its own for each client."""
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
    for number in range(options.coordinated):
        mine = replace(_of(habits, f"transactional-{number}", 0), keyed=options.compacted)
        # The first two share a name: each fences the other.
        plan = TransactionPlan(f"till-{max(number, 1)}", options.partitions)
        checkers = told.clients, told.coordinated, plan, told.coordinated.processed
        yield ProcessingClient(mine, stream(), *checkers)
    for number in range(options.partitions if options.transactions or options.coordinated else 0):
        mine = _of(habits, f"committed-reader-{number}", number)
        yield CommittedReader(mine, stream(), told.clients, told.transactions)


def writers_of(
    options: RunOptions,
    habits: Habits,
    loop: SimLoop,
    hosts: Mapping[int, BrokerHost],
    stream: Callable[[], random.Random],
) -> list[TransactionWriter]:
    """Return the writers of transactions of a run."""
    plan = WriterPlan(
        number=0,
        topic=habits.topic,
        partitions=options.partitions,
        keyed=options.compacted,
        think_ms=options.think_ms,
        stopped=habits.stopped,
    )
    plans = (replace(plan, number=number) for number in range(options.transactions))
    return [TransactionWriter(each, loop, hosts, stream()) for each in plans]


def _of(habits: Habits, name: str, partition: int) -> Habits:
    return replace(habits, name=name, partition=partition)


Ordered = CreateTopics | TopicChange | ElectLeaders | AlterReassignments
_ANONYMOUS = OnBehalf(principal=ANONYMOUS, host="client")


def in_nobodys_name(request: Ordered, options: RunOptions) -> Ordered:
    """Return the request as a broker without logins forwards it: without a principal. Return it
    unchanged if a listener requires a login."""
    return structs.replace(request, behalf=_ANONYMOUS) if options.tenants else request
