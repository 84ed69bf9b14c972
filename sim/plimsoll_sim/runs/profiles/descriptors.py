"""Runs in which a broker's process cannot open files for a while, has a disk that is nearly full,
or finds some gone after a clean stop.  Asked for by name, so that other seeds stay what they were.
"""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import ACKED, STORY, THREE, Profile

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
"""Retention, lags and looks at the disk come soon, within one story."""

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
