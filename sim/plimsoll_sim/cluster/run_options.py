"""The options of one run: sizes, settings, and how often each fault happens.

`runs.options` draws them from a seed, a scenario states them; `World` is built from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from plimsoll_sim.engine.draws import QUICK_US, LatencyUs
from plimsoll_sim.environment.send_buffers import SendBuffers

OFFSETS_FACTOR = 3
NAMED = ("deletes_groups", "offsets_kept_ms", "inside", "inside_says", "calm", "tenants",
         "certified", "clients_authority_ms", "send_buffers", "deletes_too",
         "slices_end", "refused_max", "hoarders")  # fmt: skip
"""Printed, though seeds do not depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run. Times are virtual milliseconds; brokers are numbered from
    `first_broker` on.

    `burst`: the probability that a fault comes right after another. `nervous`: the probability of
    one right after a proposal or a commit. `at_once`: the most lasting faults at the same time.

    `committers`: the clients that commit offsets. `members`: for each group, the kinds of its
    members ("eager", "cooperative", "static"). `offsets_partitions`: the partitions of
    `__consumer_offsets`, None: the default. `hoarders`: clients that commit for ever more groups,
    to brokers with little memory for them.

    `compacted`: topics are compacted, and records have keys. `deletes_too`: compacted topics have
    retention as well, and clients may delete their records. `chores_faster`: the factor by which
    brokers' chores (retention, checkpoints) come more often. `broker_configs`: further configs, of
    a scenario.

    `inside`: brokers and operators can show each other certificates. `inside_says`: the cluster
    has this "stated"; it is new and leaves it "unstated"; or it was there "before", stays without,
    and states nothing later. `calm`: no fault of the run may make a broker leave an ISR.

    `tenants`: beside the clients that may do everything there are some that log in, with an
    administrator's rules. `certified`: some of these log in by certificates.
    `clients_authority_ms`: the lifetime of the authority of these, None: years.

    `send_buffers`: the buffers of every connection, None: without limit. `refused_max`: the number
    of refused partitions and producers that a connection remembers. `slices_end`: the share of
    looks at the clock at which a slice of long work in an event loop is over; at 0 long work is
    never cut up.
    """

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
    hoarders: int = field(default=0, repr=False)

    def lines(self) -> list[str]:
        return [
            f"  {one.name} = {getattr(self, one.name)!r}"
            for one in fields(self)
            if one.repr or one.name in NAMED
        ]

    @property
    def cleanup(self) -> dict[str, str]:
        """The config of a topic that is not only deleted from."""
        if not self.compacted:
            return {}
        return {"cleanup.policy": "compact,delete" if self.deletes_too else "compact"}

    @property
    def factor_max(self) -> int:
        """The greatest replication factor of the topics that a run begins with: so many members
        there must be.  `__consumer_offsets` has three replicas, where there are as many brokers."""
        internal = 0 if self.offsets_partitions is None else min(OFFSETS_FACTOR, self.brokers)
        return max(self.replication_factor, internal)

    @property
    def broker_ids(self) -> range:
        return range(self.first_broker, self.first_broker + self.brokers)


HEALED_US_MAX = 1_000_000_000
WAIT_STEPS_MAX = 200_000
"""A move at 200 bytes a second (`faults.objects`) takes some minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The most virtual time, and the most steps, until an expected condition must hold."""

    us_max: int = HEALED_US_MAX
    steps_max: int = WAIT_STEPS_MAX
