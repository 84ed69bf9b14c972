"""Builds the brokers, operators and clients with which a run begins, from its options."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from msgspec import structs

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.moves import AlterReassignments
from plimsoll_core.messages.requests import CreateTopics
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.messages.topics import TopicChange
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.checkers.groups import GroupChecker
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.specs import cleaning_configs
from plimsoll_sim.hosts.brokers import BrokerEnvironment, BrokerHost
from plimsoll_sim.hosts.clients import Client, Consumer, Habits, Producer
from plimsoll_sim.hosts.committers import GroupHoarder, OffsetCommitter
from plimsoll_sim.hosts.operators import OperatorContext, OperatorHost


def broker_hosts(
    options: RunOptions, cluster_id: UUID, around: BrokerEnvironment
) -> dict[int, BrokerHost]:
    """Return the machines by broker id; no broker runs yet."""
    configs = _broker_configs(options)
    hosts = {n: BrokerHost(n, cluster_id, dict(configs), around) for n in options.broker_ids}
    for host in hosts.values():
        host.on_controller_loss = options.on_controller_loss
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
    )


class Witnesses(NamedTuple):
    """The checkers to which clients report their requests and answers."""

    clients: ClientChecker
    groups: GroupChecker


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


def _of(habits: Habits, name: str, partition: int) -> Habits:
    return replace(habits, name=name, partition=partition)


Ordered = CreateTopics | TopicChange | ElectLeaders | AlterReassignments
_ANONYMOUS = OnBehalf(principal=ANONYMOUS, host="client")


def in_nobodys_name(request: Ordered, options: RunOptions) -> Ordered:
    """Return the request as a broker without logins forwards it: without a principal. Return it
    unchanged if a listener requires a login."""
    return structs.replace(request, behalf=_ANONYMOUS) if options.tenants else request
