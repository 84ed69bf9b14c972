"""Runs in which etcd is restored or loses a part of the log."""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import Profile

RESTORES: dict[str, Profile] = {
    # The log goes back or is lost, more than once, and is restored from the brokers' copies.
    "restored log": Profile(
        faults={
            "restore_etcd": 20,
            "lose_metadata_batches": 3,
            "kill_broker": 2,
            "kill_operator": 3,
            "degrade_api_server": 1,
            "change_min_isr": 2,
            "elect_preferred_leaders": 1,
            "roll_brokers": 1,
        },
        choices={
            "operators": (1, 2),
            "slots": (16, 64),
            "fault_gap_ms": (1_000, 3_000),
            "heal_ms": (500, 2_000),
            "consumers": (0,),
            "think_ms": ((200, 2_000),),
        },
    ),
    # The log is lost, and most brokers' copies with it: what is left is the backup.
    "backup": Profile(
        faults={
            "restore_from_backup": 4,
            "fail_bucket": 6,
            "spoil_backup": 4,
            "kill_broker": 2,
            "kill_operator": 3,
            "degrade_api_server": 1,
            "change_min_isr": 3,
        },
        choices={
            "operators": (1, 2),
            "slots": (16, 64),
            "fault_gap_ms": (1_000, 3_000),
            "heal_ms": (500, 2_000),
            "consumers": (0,),
            "think_ms": ((200, 2_000),),
            "backup": (True,),
        },
    ),
    # One broker knows what etcd lost, and comes back when a snapshot covers it.
    "restored etcd": Profile(
        faults={
            "restore_etcd_behind_broker": 6,
            "kill_broker": 1,
            "kill_operator": 2,
            "change_min_isr": 2,
            "elect_preferred_leaders": 1,
        },
        choices={
            "operators": (1, 2),
            "slots": (16,),
            "fault_gap_ms": (400,),
            "heal_ms": (500, 2_000),
            "consumers": (0,),
            "think_ms": ((200, 2_000),),
        },
    ),
}
