"""The brokers and operators that a run begins with, from its options."""

from __future__ import annotations

from uuid import UUID

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.specs import cleaning_configs
from plimsoll_sim.hosts.brokers import BrokerEnvironment, BrokerHost
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
