"""The options of one run: sizes, settings, and how often each fault happens.

`runs.options` draws them from a seed, a scenario states them; `World` is built from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from plimsoll_operator.api.pools import IDS_OF_A_POOL
from plimsoll_sim.engine.draws import QUICK_US, LatencyUs
from plimsoll_sim.environment.send_buffers import SendBuffers

OFFSETS_FACTOR = 3
NAMED = ("deletes_groups", "offsets_kept_ms", "inside", "inside_says", "calm", "tenants",
         "certified", "clients_authority_ms", "send_buffers", "deletes_too",
         "slices_end", "refused_max", "hoarders", "pooled",
         "staged_s", "transactions", "coordinated", "backup", "takes_pushes")  # fmt: skip
"""Names of options that are printed with a run although seeds do not depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run. Times are virtual milliseconds; brokers are numbered from `first_broker`
    on. `burst`: probability that a fault follows directly after another. `nervous`: probability of
    a fault right after a proposal or a commit. `at_once`: maximum number of lasting faults at the
    same time. `committers`: number of clients that commit offsets. `members`: for each group, the
    kinds of its members ("eager", "cooperative", "static"). `offsets_partitions`: number of
    partitions of `__consumer_offsets`, None: the default. `hoarders`: number of clients that commit
    for more and more groups, to brokers with little memory for groups. `compacted`: True if topics
    are compacted and records have keys. `deletes_too`: True if compacted topics have retention as
    well, and clients may delete their records. `chores_faster`: factor by which brokers' periodic
    tasks (retention, checkpoints) run more often. `broker_configs`: further configs, stated by a
    scenario. `inside`: True if brokers and operators can show each other certificates.
    `inside_says`: what the LogCluster's spec says about that: "stated"; "unstated" for a new
    cluster that states nothing; "before" for a cluster that existed before, has no certificates and
    states nothing. `calm`: True if no fault of the run may make a broker leave an ISR. `tenants`:
    True if, beside the clients that may do everything, some clients log in and have an
    administrator's rules. `certified`: True if some of these log in by certificates.
    `clients_authority_ms`: lifetime of the authority of their certificates, None: years.
    `send_buffers`: buffers of every connection, None: unlimited. `refused_max`: number of refused
    partitions and producers that a connection remembers. `pooled`: number of the brokers that are
    in a second pool, with ids from 100 on; 0: the cluster has no pools. `staged_s`: the second pool
    rolls first, and the other one so many seconds after it; None: they roll together. `slices_end`:
    share of readings of the clock at which a slice of long work in an event loop ends; with 0 long
    work is never divided. `transactions`: number of writers of transactions without a coordinator.
    `coordinated`: number of transactional producers; with any, brokers have transactions.
    `backup`: True if the metadata are backed up into a bucket. `takes_pushes`: the brokers that
    take pushes of their leaders; "some": each in every second life, so that a restart is an upgrade
    or a downgrade."""

    profile: str = ""
    brokers: int
    first_broker: int = 0
    operators: int
    partitions: int
    replication_factor: int
    min_isr: int
    slots: int
    latency_us: LatencyUs
    api_latency_us: LatencyUs = QUICK_US
    lag_time_max_ms: int
    flap_wait_ms_max: int = 4_000
    slice_partitions_max: int
    segment_bytes: int
    flush_messages: int | None
    flush_ms: int | None = None
    retention_bytes: int | None = None
    retention_ms: int | None = None
    compacted: bool = False
    unclean_recovery: Literal["Balanced", "Proactive"] = "Balanced"
    chores_faster: int = 1
    on_controller_loss: Literal["KeepServing", "StopServing"] = "KeepServing"
    metadata_version: int | None = None
    volumes_when_scaled: Literal["Retain", "Delete"] = "Retain"
    auto_rebalance: Literal["Off", "Propose", "Automatic"] = "Off"
    producers: tuple[tuple[int, bool], ...]
    consumers: int
    committers: int = 0
    members: tuple[tuple[str, ...], ...] = ()
    offsets_partitions: int | None = None
    think_ms: tuple[int, int]
    fault_gap_ms: int
    heal_ms: int
    burst: float = 0.0
    nervous: float = 0.0
    at_once: int = 100
    faults: tuple[tuple[str, int], ...]
    # How long offsets are kept after the last commit; committers then rest for longer now and
    # then, and delete nothing. Drawn after all others, by dice of its own.
    offsets_kept_ms: int | None = field(default=None, repr=False)
    # True if committers delete their groups, too.  Drawn behind all others, by dice of its own.
    deletes_groups: bool = field(default=False, repr=False)
    # Drawn behind all others, by dice of its own.
    slices_end: float = field(default=0.0, repr=False)
    refused_max: int | None = field(default=None, repr=False)
    pooled: int = field(default=0, repr=False)
    staged_s: int | None = field(default=None, repr=False)
    # Not drawn: seeds depend on the text of all other options.
    inside: bool = field(default=False, repr=False)
    inside_says: Literal["stated", "unstated", "before"] = field(default="stated", repr=False)
    calm: bool = field(default=False, repr=False)
    tenants: bool = field(default=False, repr=False)
    certified: bool = field(default=False, repr=False)
    clients_authority_ms: int | None = field(default=None, repr=False)
    broker_configs: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    send_buffers: SendBuffers | None = field(default=None, repr=False)
    deletes_too: bool = field(default=False, repr=False)
    # Drawn behind all others, by dice of its own.
    transactions: int = field(default=0, repr=False)
    coordinated: int = field(default=0, repr=False)
    # Drawn behind all others, by dice of its own.
    backup: bool = field(default=False, repr=False)
    takes_pushes: Literal["all", "some", "none"] = field(default="all", repr=False)
    hoarders: int = field(default=0, repr=False)

    def lines(self) -> list[str]:
        return [
            f"  {one.name} = {getattr(self, one.name)!r}"
            for one in fields(self)
            if one.repr or one.name in NAMED
        ]

    @property
    def cleanup(self) -> dict[str, str]:
        """Return the topic's config `cleanup.policy`, or {} for the default, delete."""
        if not self.compacted:
            return {}
        return {"cleanup.policy": "compact,delete" if self.deletes_too else "compact"}

    @property
    def factor_max(self) -> int:
        """Return the greatest replication factor of the topics with which a run begins; there must
        be as many members. `__consumer_offsets` has three replicas, or one on each broker if there
        are fewer brokers."""
        has_internal = self.offsets_partitions is not None or self.coordinated > 0
        internal = min(OFFSETS_FACTOR, self.brokers) if has_internal else 0
        return max(self.replication_factor, internal)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Return all ids that brokers may have, in order."""
        alone = self.first_broker + self.brokers - self.pooled
        second = range(IDS_OF_A_POOL, IDS_OF_A_POOL + self.pooled)
        return (*range(self.first_broker, alone), *second)


HEALED_US_MAX = 1_000_000_000
WAIT_STEPS_MAX = 200_000
"""Maximum number of steps to wait for a condition. A move at 200 bytes a second (`faults.objects`)
takes some minutes of virtual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits on the virtual time and the number of steps within which an expected condition must
    hold."""

    us_max: int = HEALED_US_MAX
    steps_max: int = WAIT_STEPS_MAX
