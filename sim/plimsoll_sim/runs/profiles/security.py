"""Runs of clusters in which brokers and operators show each other certificates: these are
replaced, and intruders try what they stole. Each is asked for by name, so that all other seeds
stay the same."""

from __future__ import annotations

from typing import Any

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.runs.profiles.profile import ACKED, CLOSE, THREE, Profile

_SECURED = {
    **CLOSE,
    **THREE,
    "inside": (True,),
    "latency_us": (LatencyUs(100, 5_000), LatencyUs(1_000, 40_000)),
    "think_ms": ((200, 2_000), (1_000, 4_000)),
    "producers": ACKED,
    "consumers": (1,),
    "flap_wait_ms_max": (1_000,),
}
_OPERATORS = {
    "rotate_authority": 8,
    "step_operators_clocks": 3,
    "intrude": 6,
    "linger": 2,
    "kill_operator": 4,
    "stop_operator": 2,
}


def _with_tenants(**more: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Return options for a run with users that log in, while their rules are changed. `more`:
    further options, placed after these, since a seed draws in this order."""
    return {
        **_SECURED,
        "inside": (False, False, True),
        "tenants": (True,),
        **more,
        "brokers": (3,),
        "partitions": (1,),
        "think_ms": ((50, 500), (200, 2_000)),
        "producers": (((-1, True),),),
        "consumers": (0,),
        "fault_gap_ms": (400, 1_500),
    }


SECURITY: dict[str, Profile] = {
    # Brokers are down, slow and cut off, and operators killed, in every state of a rotation.
    "rotation": Profile(
        faults={
            **_OPERATORS,
            "kill_broker": 3,
            "stop_broker": 2,
            "cut_broker_from_controllers": 3,
            "cut_link_between_brokers": 2,
            "stall_metadata_stream": 2,
            "pause_operator": 3,
            "cut_operator_from_api_server": 2,
            "degrade_api_server": 2,
        },
        choices={**_SECURED, "heal_ms": (500, 2_000, 8_000), "fault_gap_ms": (1_500, 4_000)},
    ),
    # Only operators fail: no broker may leave an ISR.
    "calm rotation": Profile(
        faults={**_OPERATORS, "degrade_api_server": 2},
        choices={
            **_SECURED,
            "calm": (True,),
            "lag_time_max_ms": (30_000,),
            "flush_messages": (None,),
            "fault_gap_ms": (1_500, 4_000),
        },
    ),
    # The cluster does not say if it has certificates: a new one has them, an old one has none.
    "unstated": Profile(
        faults={
            "lose_status": 8,
            "kill_operator": 8,
            "stop_operator": 3,
            "pause_operator": 2,
            "kill_broker": 2,
            "stop_broker": 1,
            "cut_broker_from_controllers": 2,
            "degrade_api_server": 2,
        },
        choices={
            **_SECURED,
            "inside_says": ("unstated", "before"),
            "fault_gap_ms": (400, 1_500),
        },
    ),
    "intruder": Profile(
        faults={
            "intrude": 16,
            "linger": 4,
            "rotate_authority": 6,
            "step_operators_clocks": 2,
            "kill_broker": 3,
            "pause_broker": 2,
            "cut_broker_from_controllers": 3,
            "stall_metadata_stream": 3,
            "kill_operator": 3,
        },
        choices={**_SECURED, "fault_gap_ms": (400, 1_500)},
    ),
    # The clocks of some operators are years ahead, and these lead in turn with others.
    "wrong clocks": Profile(
        faults={
            "mislead_operator": 16,
            "rotate_authority": 3,
            "kill_operator": 4,
            "pause_operator": 3,
            "kill_broker": 2,
            "cut_operator_from_api_server": 2,
            "degrade_api_server": 2,
        },
        choices=_with_tenants(certified=(True,)),
    ),
    # An administrator changes what users may, while they do it.
    "revocation": Profile(
        faults={
            "change_user": 16,
            "kill_broker": 2,
            "stop_broker": 1,
            "cut_broker_from_controllers": 2,
            "stall_metadata_stream": 6,
            "elect_preferred_leaders": 1,
            "kill_operator": 2,
        },
        choices=_with_tenants(),
    ),
    # The same for users who log in by certificates, which are renewed, end, and are revoked.
    "certificates": Profile(
        faults={
            "change_certified": 18,
            "change_user": 2,
            "kill_broker": 2,
            "stop_broker": 1,
            "cut_broker_from_controllers": 2,
            "stall_metadata_stream": 6,
            "kill_operator": 3,
        },
        choices=_with_tenants(certified=(True,)),
    ),
    # Their authority is replaced again and again, or ends before it is replaced.
    "clients' authority": Profile(
        faults={
            "change_certified": 4,
            "kill_operator": 8,
            "stop_operator": 3,
            "pause_operator": 4,
            "kill_broker": 3,
            "stop_broker": 2,
            "cut_broker_from_controllers": 3,
            "stall_metadata_stream": 3,
            "cut_operator_from_api_server": 2,
            "degrade_api_server": 2,
        },
        choices=_with_tenants(certified=(True,), clients_authority_ms=(3_600,)),
    ),
}
