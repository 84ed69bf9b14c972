"""The settings on which the controller's decisions depend, as an administrator states them."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import UncleanRecovery
from plimsoll_core.controller.kernel.availability_margin import ExposedTopics
from plimsoll_core.controller.kernel.voluntary_work import ALWAYS, Hours
from plimsoll_core.messages.brokers import AS_STARTED, LogOutput
from plimsoll_core.planner.placement import RackPolicy
from plimsoll_core.published_limits import PARTITIONS_OF_CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """The partitions, replication factor and segment size of an internal topic: Kafka's
    `offsets.topic.*` and `transaction.state.log.*`."""

    partitions: int = 50
    replication_factor: int = 3
    segment_bytes: int = 104_857_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings on which decisions depend, from the LogCluster's spec and the Helm chart.

    `session_timeout_ms`: a broker without a heartbeat for so long is fenced.
    `slice_partitions_max`: the most partitions that one turn changes. A broker that failed within
    `flap_window_ms` is held back from ISRs for at most `flap_wait_ms_max`. `producer_id_block`: the
    producer ids in one block. `unclean_wait_ms`: the longest wait of a Proactive recovery for
    replicas' reports. `preferred_leader_interval_ms`: the time between two elections of preferred
    leaders. `target_lost_ms`: a broker inactive for so long is replaced as the target of a move.
    `maintenance_suspended`: True if no restart is granted. `hours`: when voluntary work may begin.
    """

    session_timeout_ms: int = 6_000
    slice_partitions_max: int = 1_000
    flap_window_ms: int = 600_000
    flap_wait_ms_max: int = 60_000
    default_partitions: int = 6
    default_replication_factor: int = 3
    default_min_isr: int = 2
    partitions_per_topic_max: int = 10_000
    partitions_per_cluster_max: int = PARTITIONS_OF_CLUSTER.most
    partitions_per_namespace_max: int | None = None  # of declared topics; None: any number
    client_created_topics: bool = True
    offsets_topic: InternalTopic = InternalTopic()
    transactions_topic: InternalTopic = InternalTopic()
    producer_id_block: int = 1_000
    rack_policy: RackPolicy = "Preferred"
    unclean_recovery: UncleanRecovery = "Balanced"
    unclean_wait_ms: int = 5_000
    preferred_leader_interval_ms: int = 30_000
    target_lost_ms: int = 120_000
    exposed_topics: ExposedTopics = "Interrupt"
    maintenance_suspended: bool = False
    hours: Hours = ALWAYS
    log_output: LogOutput = AS_STARTED
    """The log format and level that answers to heartbeats carry; no decision uses it."""
    metadata_version: int | None = None
    """The metadata version that the spec pins, or None for the newest that every broker
    understands."""
