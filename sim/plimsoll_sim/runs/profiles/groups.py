"""Runs about groups: coordinators move, die and come back while offsets are committed, their logs
are cleaned, and offsets expire.
"""

from __future__ import annotations

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.runs.profiles.profile import CLOSE, Profile

_ABOUT = Profile(
    faults={
        "kill_broker": 6,
        "stop_broker": 4,
        "pause_broker": 4,
        "cut_link_between_brokers": 5,
        "cut_broker_from_controllers": 4,
        "crash_broker_at_io": 3,
        "cut_power_of_broker": 1,
        "cut_client_from_broker": 2,
        "isolate_broker": 5,
        "stall_metadata_stream": 3,
        "slow_link": 2,
        "elect_preferred_leaders": 4,
    },
    choices={
        **CLOSE,
        "brokers": (3, 3, 4),
        "replication_factor": (3,),
        "min_isr": (1, 2),
        "partitions": (1, 2),
        "heal_ms": (2_000, 14_000, 25_000),
        "flap_wait_ms_max": (1_000,),
        "lag_time_max_ms": (1_000, 5_000),
        "latency_us": (LatencyUs(100, 5_000), LatencyUs(1_000, 40_000)),
        "think_ms": ((10, 500), (200, 2_000)),
        # With 300 bytes, batches have several records, of which a cleaner removes a part.
        "segment_bytes": (200, 300, 1_000, 1_000_000),
        "compacted": (False, False, True),
        "producers": (((-1, True),),),
        "consumers": (0,),
        "committers": (2, 3, 5),
        "members": (
            (),
            (("eager", "eager", "static"),),
            (("cooperative", "cooperative", "cooperative"), ("static", "eager")),
            (("static", "static"), ("eager",), ("eager", "eager", "eager", "static")),
        ),
        "offsets_partitions": (1, 2, 3),
    },
)

_EXPIRY = Profile(
    faults=_ABOUT.faults,
    choices={
        **_ABOUT.choices,
        "heal_ms": (500, 2_000),
        "committers": (2, 3),
        "members": ((), (("eager", "static"),), (("cooperative",),)),
        "offsets_kept_ms": (500, 1_000, 3_000),
    },
)

GROUPS: dict[str, Profile] = {
    "groups": _ABOUT,
    "expiry": _EXPIRY,
    # Others commit more than brokers have room for, which take over from each other.
    "hoarded groups": Profile(
        faults={**_ABOUT.faults, "kill_broker": 10, "elect_preferred_leaders": 8},
        choices={
            **_ABOUT.choices,
            "brokers": (3,),
            "committers": (2, 3),
            "members": ((), (("eager", "static"),)),
            "offsets_partitions": (2, 3),
            "segment_bytes": (20_000, 1_000_000),
            "hoarders": (3, 4),
        },
    ),
    # One client takes up to its share and no more; the others still find room.
    "shares": Profile(
        faults={**_ABOUT.faults, "elect_preferred_leaders": 8},
        choices={
            **_ABOUT.choices,
            "brokers": (3,),
            "committers": (2, 3),
            "members": ((),),
            "offsets_partitions": (1,),
            "segment_bytes": (1_000_000,),
            "hoarders": (1,),
        },
    ),
    "expiry by wrong clocks": Profile(
        faults={**_EXPIRY.faults, "set_wall_clock_back": 12}, choices=_EXPIRY.choices
    ),
}
