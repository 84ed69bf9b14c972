"""Runs in which batches are damaged on their way to a broker. These are used only if they are
named; a part of all other runs has the fault, too (`runs.drawn_options`)."""

from __future__ import annotations

from plimsoll_sim.runs.profiles.profile import CLOSE, THREE, Profile

DAMAGE: dict[str, Profile] = {
    "damaged batches": Profile(
        faults={
            "damage_batches": 12,
            "kill_broker": 2,
            "stop_broker": 1,
            "cut_link_between_brokers": 2,
            "cut_client_from_broker": 2,
            "stall_connection": 2,
            "elect_preferred_leaders": 1,
        },
        choices={
            **CLOSE,
            **THREE,
            "flap_wait_ms_max": (1_000,),
            "lag_time_max_ms": (1_000, 5_000),
            "think_ms": ((1, 50), (10, 500)),
            "producers": (((-1, True), (-1, True)), ((-1, True), (1, False), (0, False))),
            "consumers": (1,),
        },
    ),
}
