"""Draws the options of one run from its seed.

Each run leaves some faults out altogether (swarm testing), so that rare combinations occur; other
runs have a profile (`profiles`). Everything that was drawn is printed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.engine.draws import QUICK_US, LatencyUs
from plimsoll_sim.faults.fault_table import TABLE
from plimsoll_sim.runs.profiles.profile_table import DRAWN, PROFILES

RARE_SHARE = 0.06
"""Share of runs without a profile that include a rare fault."""
CLIENT_TOPIC_SHARE = 0.4
GROUPS_SHARE = 0.25
"""Share of runs with groups among the runs that could have groups and have no profile that asks for
them."""
DELETES_SHARE = 0.3
"""Share of runs with committers in which the committers sometimes delete their groups."""
EXPIRY_SHARE = 0.2
"""Share of runs with added groups in which offsets expire, if no clock steps."""
OFFSETS_KEPT_MS = (1_000, 3_000)
BUSY_SHARE = 0.3
"""Share of runs in which long work in an event loop is divided into slices."""
SLICES_END = (0.02, 0.7)
CLIENT_TOPIC_FAULT = ("change_client_topic", 15)
DAMAGE_SHARE = 0.15
"""Share of runs without a profile in which batches are damaged on their way to a broker."""
DAMAGE_FAULT = ("damage_batches", 8)
DELETIONS_SHARE = 0.3
"""Share of runs without a profile in which a client deletes records that a member of an ELR still
has."""
DELETIONS_FAULT = ("delete_beside_elr", 10)
FORK_SHARE = 0.04
"""Share of runs without a profile in which etcd is restored to a state older than the metadata of
one broker."""
FORK_FAULT = ("restore_etcd_behind_broker", 3)
RESTORED_SHARE = 0.05
"""Share of the other runs without a profile that become runs of `RESTORED`, in which the metadata
log goes back or is lost."""
RESTORED = "restored log"
LATE_PROPOSALS_SHARE = 0.08
"""The share of runs without a profile, but with two operators, in which proposals outlive terms."""
LATE_PROPOSALS_FAULT = ("deliver_proposal_two_terms_late", 3)
HOURS_SHARE = 0.2
"""Share of runs without a profile, but with the newest metadata version, in which windows, pauses
and hibernation occur."""
HOURS_FAULTS = (("change_windows", 4), ("pause_cluster", 4), ("hibernate_cluster", 2))
FEW_SHARE = 0.3
"""Share of runs in which a connection remembers hardly any refused batch."""
POOLS_SHARE = 0.25
"""Share of runs with two pools of brokers, among those that remove brokers."""
STAGED_S = (None, None, 0, 5)
"""The pause of the second pool, which rolls first; None: the pools roll together."""
LOST_FILES_SHARE = 0.5
"""Share of runs with compacted topics, and without a requested profile, in which files are lost
too."""
LOST_FILES_FAULTS = (("lose_file", 12), ("kill_broker", 3))
TRANSACTIONS_SHARE = 0.25
"""Share of runs without a profile in which transactions are written and read."""
BACKUP_SHARE = 0.2
"""Share of runs with a backup of the metadata, among those that could have one."""
BACKUP_FAULTS: tuple[tuple[str, int], ...] = (("fail_bucket", 2), ("spoil_backup", 2))
RESTORES_SHARE = 0.3
"""Share of runs with a backup in which the metadata are lost, and restored from it."""
RESTORE_FAULT = ("restore_from_backup", 1)
TAKES_PUSHES: tuple[Literal["all", "some", "none"], ...] = ("all",) * 6 + ("some",) * 3 + ("none",)
LATENCIES_US = (
    LatencyUs(50, 500),
    LatencyUs(100, 5_000),
    LatencyUs(1_000, 40_000),
    LatencyUs(5_000, 200_000),
)
API_LATENCIES_US = (
    QUICK_US,
    QUICK_US,
    LatencyUs(20_000, 300_000),
)


def draw(rng: random.Random, profile: str | None = None) -> RunOptions:
    """Draw the options of one run; `profile` None: any profile or none."""
    options = _of_any_profile(rng) if profile is None else _of_profile(rng, profile)
    profile = options.profile
    version = rng.choice((None, None, 1))
    needs_newest = bool(
        options.committers
        or options.members
        or options.inside
        or options.tenants
        or options.coordinated
        or options.backup
    )
    options = replace(
        options,
        metadata_version=None if needs_newest else version,
        volumes_when_scaled=rng.choice(("Retain", "Delete")),
        auto_rebalance=rng.choice(("Off", "Propose", "Automatic")),
    )
    # By dice of its own, and in runs without a profile: all other seeds stay the same.
    if not profile and random.Random(f"{options}").random() < CLIENT_TOPIC_SHARE:
        options = replace(options, faults=(*options.faults, CLIENT_TOPIC_FAULT))
    able = not profile and options.min_isr > 1
    if able and random.Random(f"deletions {options}").random() < DELETIONS_SHARE:
        options = replace(options, faults=(*options.faults, DELETIONS_FAULT))
    if not profile and options.metadata_version is None:
        options = _of_newest_version(options)
    able = not profile and options.operators > 1
    if able and random.Random(f"late proposals {options}").random() < LATE_PROPOSALS_SHARE:
        options = replace(options, faults=(*options.faults, LATE_PROPOSALS_FAULT))
    # Brokers of an older metadata version know no groups.
    able = options.metadata_version is None and options.offsets_partitions is None
    dice = random.Random(f"groups {options}")
    if able and dice.random() < GROUPS_SHARE:
        options = _with_groups(options, dice)
    if options.committers and random.Random(f"deletes {options}").random() < DELETES_SHARE:
        options = replace(options, deletes_groups=True)
    dice = random.Random(f"slices {options}")
    if dice.random() < BUSY_SHARE:
        options = replace(options, slices_end=dice.choice(SLICES_END))
    dice = random.Random(f"refused {options}")
    if dice.random() < FEW_SHARE:
        options = replace(options, refused_max=dice.choice((1, 2)))
    options = _with_pools(options)
    if not profile and random.Random(f"damage {options}").random() < DAMAGE_SHARE:
        options = replace(options, faults=(*options.faults, DAMAGE_FAULT))
    options = _with_backup(_with_transactions(options))
    takes_pushes = random.Random(f"pushes {options}").choice(TAKES_PUSHES)
    return replace(options, takes_pushes=takes_pushes)


def _with_backup(options: RunOptions) -> RunOptions:
    """Back up the metadata in some of the runs without a profile and of those that lose metadata;
    an older metadata version has no backup."""
    dice = random.Random(f"backup {options}")
    able = options.metadata_version is None and options.profile in ("", RESTORED)
    if not able or dice.random() >= BACKUP_SHARE:
        return options
    faults = BACKUP_FAULTS
    if dice.random() < RESTORES_SHARE:
        faults = (*faults, RESTORE_FAULT)
    return replace(options, backup=True, faults=(*options.faults, *faults))


def _with_transactions(options: RunOptions) -> RunOptions:
    """Add writers and readers of transactions, in some of the runs without a profile."""
    dice = random.Random(f"transactions {options}")
    if options.profile or dice.random() >= TRANSACTIONS_SHARE:
        return options
    return replace(options, transactions=dice.randint(1, 2))


def _with_pools(options: RunOptions) -> RunOptions:
    """Put some of the brokers into a second pool, in some of the runs that remove brokers."""
    dice = random.Random(f"pool {options}")
    able = options.metadata_version is None  # an older one has no pools
    if able and "remove_broker" in dict(options.faults) and dice.random() < POOLS_SHARE:
        pooled = dice.randint(1, options.brokers)
        return replace(options, pooled=pooled, staged_s=dice.choice(STAGED_S))
    return options


def _of_newest_version(options: RunOptions) -> RunOptions:
    """Add faults that need the newest metadata version, in some runs."""
    if random.Random(f"forks {options}").random() < FORK_SHARE:
        options = replace(options, faults=(*options.faults, FORK_FAULT))
    if random.Random(f"hours {options}").random() < HOURS_SHARE:
        options = replace(options, faults=(*options.faults, *HOURS_FAULTS))
    return options


def losing_files(options: RunOptions) -> RunOptions:
    """Add the loss of files that cleaners rely on, in some runs with compacted topics."""
    if random.Random(f"lost files {options}").random() >= LOST_FILES_SHARE:
        return options
    names = [name for name, _ in LOST_FILES_FAULTS]
    others = [one for one in options.faults if one[0] not in names]
    return replace(options, faults=(*others, *LOST_FILES_FAULTS))


def _with_groups(options: RunOptions, dice: random.Random) -> RunOptions:
    """Add groups; their partitions are cleaned all the time."""
    true = all(name != "step_wall_clock" for name, _ in options.faults)
    options = replace(
        options,
        committers=dice.randint(1, 3),
        members=dice.choice(((), (("eager", "static"),), (("cooperative", "cooperative"),))),
        offsets_partitions=dice.randint(1, 3),
    )
    if true and dice.random() < EXPIRY_SHARE:
        return replace(options, offsets_kept_ms=dice.choice(OFFSETS_KEPT_MS))
    return options


def _of_any_profile(rng: random.Random) -> RunOptions:
    options = _of_profile(rng, rng.choice(("", *DRAWN)) if rng.random() < 0.6 else "")
    # By dice of its own: all other seeds stay the same.
    dice = random.Random(f"restored log {options}")
    if options.profile or dice.random() >= RESTORED_SHARE:
        return options
    return _of_profile(dice, RESTORED)


def _of_profile(rng: random.Random, profile: str) -> RunOptions:
    options = _anything(rng)
    if not profile:
        return options
    about = PROFILES[profile]
    chosen = {name: rng.choice(values) for name, values in about.choices.items()}
    options = replace(options, profile=profile, faults=tuple(about.faults.items()), **chosen)
    factor = min(options.replication_factor, options.brokers)
    return replace(options, replication_factor=factor, min_isr=min(options.min_isr, factor))


def _anything(rng: random.Random) -> RunOptions:
    brokers = rng.choice((3, 3, 3, 4, 5))
    factor = rng.randint(2, min(brokers, 4)) if rng.random() < 0.9 else 1
    share = rng.choice((0.12, 0.25, 0.5))
    chosen = [
        (fault.name, fault.weight)
        for fault in TABLE
        if fault.weight and rng.random() < (RARE_SHARE if fault.rare else share)
    ]
    producers = tuple(
        rng.choice(((-1, True), (-1, True), (-1, False), (1, False), (0, False)))
        for _ in range(rng.randint(1, 3))
    )
    return RunOptions(
        brokers=brokers,
        operators=rng.choice((1, 2, 2)),
        partitions=rng.randint(1, 3),
        replication_factor=factor,
        min_isr=rng.randint(1, factor),
        slots=rng.choice((16, 32, 64)),
        latency_us=rng.choice(LATENCIES_US),
        api_latency_us=rng.choice(API_LATENCIES_US),
        lag_time_max_ms=rng.choice((1_000, 5_000, 30_000)),
        flap_wait_ms_max=rng.choice((1_000, 1_000, 4_000, 60_000)),
        slice_partitions_max=rng.choice((1, 2, 1_000, 1_000, 1_000)),
        segment_bytes=rng.choice((200, 1_000, 1_000_000)),
        flush_messages=rng.choice((None, None, None, 1, 3)),
        flush_ms=rng.choice((None, None, None, 200)),
        retention_bytes=rng.choice((None, None, None, 300, 1_000)),
        retention_ms=rng.choice((None, None, None, 2_000, 10_000)),
        unclean_recovery=rng.choice(("Balanced",) * 9 + ("Proactive",)),
        chores_faster=rng.choice((1, 1, 5, 20)),
        on_controller_loss="StopServing" if rng.random() < 0.3 else "KeepServing",
        producers=producers,
        consumers=rng.randint(0, 2),
        think_ms=rng.choice(((1, 50), (10, 500), (200, 2_000))),
        fault_gap_ms=rng.choice((400, 1_500, 4_000)),
        heal_ms=rng.choice((500, 2_000, 8_000)),
        burst=rng.choice((0.0, 0.3, 0.6)),
        nervous=rng.choice((0.0, 0.02, 0.1)),
        at_once=rng.choice((1, 2, 3, 100)),
        faults=tuple(chosen) or (("kill_broker", 1),),
    )
