"""Runs about disks and their content, file descriptors, log starts, and impostors."""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, STORY, THREE, Profile

DISKS: dict[str, Profile] = {
    # The content of disks after a crash, and how far it may be trusted.
    "disks": Profile(
        faults={
            "cut_power_of_broker": 6,
            "cut_power_of_all_brokers": 2,
            "crash_broker_at_io": 5,
            "stop_broker": 5,
            "restore_disk_image": 4,
            "kill_broker": 3,
            "cut_link_between_brokers": 3,
            "fill_disk": 1,
        },
        choices={
            **CLOSE,
            "at_once": (2, 3),
            "replication_factor": (2, 3),
            "min_isr": (2, 3),
            "flush_messages": (None, None, 1),
            "segment_bytes": (200, 1_000),
            "lag_time_max_ms": (1_000,),
            "producers": ACKED,
        },
    ),
    # Old records are removed, and brokers that were away begin where the others do.
    "beginnings": Profile(
        faults={
            "elect_leader_behind_log_start": 8,
            "delete_records": 5,
            "change_retention": 2,
            "step_wall_clock": 3,
            "kill_broker": 2,
            "cut_power_of_broker": 1,
            "crash_broker_at_io": 1,
            "cut_link_between_brokers": 1,
        },
        choices={
            **STORY,
            "brokers": (3,),
            "replication_factor": (2, 3),
            "min_isr": (1, 2),
            "partitions": (1, 2),
            "at_once": (1, 2),
            "retention_bytes": (None, 300, 1_000),
            "retention_ms": (None, 5_000, 20_000),
            "segment_bytes": (100, 200, 300),
            "chores_faster": (20,),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "think_ms": ((50, 500),),
            "producers": ACKED,
        },
    ),
    # Flushed data survives every power cut, and truncated data stays truncated.
    "flushed": Profile(
        faults={
            "cut_power_of_broker": 6,
            "cut_power_of_all_brokers": 4,
            "diverge_logs_in_two_epochs": 8,
            "elect_leader_with_unflushed_log": 8,
            "crash_broker_at_io": 2,
            "cut_link_between_brokers": 4,
            "kill_broker": 2,
            "stop_broker": 1,
            "slow_disk": 1,
            "delete_records": 3,
            "change_retention": 2,
        },
        choices={
            **CLOSE,
            "at_once": (2, 3),
            "replication_factor": (2, 3),
            "min_isr": (1, 2),
            "partitions": (1, 2),
            "flush_messages": (1,),
            "retention_bytes": (None, 300, 1_000),
            "chores_faster": (1, 20),
            "segment_bytes": (200, 300, 600),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "unclean_recovery": ("Balanced",),
            "producers": (*ACKED, ((1, False), (-1, True))),
        },
    ),
    # Disks fill, and have room again.
    "room": Profile(
        faults={
            "fill_disk": 5,
            "fill_disk_during_proposal": 8,
            "kill_broker": 1,
            "cut_link_between_brokers": 1,
        },
        choices={
            **STORY,
            **THREE,
            "at_once": (1, 2),
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000,),
            "chores_faster": (20,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
    # A peer that is no broker claims to be one.
    "strangers": Profile(
        faults={
            "fetch_as_impostor": 8,
            "cut_link_between_brokers": 3,
            "slow_link": 2,
            "kill_broker": 1,
        },
        choices={
            **CLOSE,
            **THREE,
            "at_once": (2, 3),
            "lag_time_max_ms": (5_000, 30_000),
            "think_ms": ((1, 50), (10, 500)),
            "producers": ACKED,
        },
    ),
}


_SMALL_SEGMENTS = {
    **STORY,
    **THREE,
    "at_once": (1, 2),
    "retention_bytes": (None, 300, 1_000),
    "segment_bytes": (100, 200, 300),
    "chores_faster": (20,),
    "flap_wait_ms_max": (1_000,),
    "lag_time_max_ms": (1_000,),
    "think_ms": ((1, 50), (10, 500)),
    "producers": ACKED,
}
"""Options with which retention, lags and checks of the disk happen soon enough for one story."""

DESCRIPTORS: dict[str, Profile] = {
    "descriptors": Profile(
        faults={
            "exhaust_descriptors": 10,
            "fill_disk": 2,
            "elect_leader_behind_log_start": 6,
            "delete_records": 3,
            "change_retention": 2,
            "kill_broker": 1,
            "cut_link_between_brokers": 3,
        },
        choices=_SMALL_SEGMENTS,
    ),
    "little room": Profile(
        faults={
            "leave_little_room": 10,
            "fill_disk": 3,
            "kill_broker": 2,
            "stop_broker": 1,
            "cut_link_between_brokers": 2,
        },
        choices={**_SMALL_SEGMENTS, "heal_ms": (20_000,), "think_ms": ((50, 1_000),)},
    ),
    "lost files": Profile(
        faults={
            "lose_file": 10,
            "stop_broker": 2,
            "change_retention": 2,
            "delete_records": 2,
            "kill_broker": 1,
            "cut_link_between_brokers": 2,
        },
        choices=_SMALL_SEGMENTS,
    ),
}
