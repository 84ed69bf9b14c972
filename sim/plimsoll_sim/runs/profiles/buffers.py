"""Runs in which kernels accept only a limited amount of unread data on a connection, so that
writers pause and resume. These profiles are used only if they are named, so that all other seeds
stay the same.
"""

from __future__ import annotations

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.environment.send_buffers import SendBuffers
from plimsoll_sim.runs.profiles.profile import CLOSE, THREE, Profile

BUFFERS: dict[str, Profile] = {
    "full buffers": Profile(
        faults={
            "read_slowly": 16,
            "pause_broker": 3,
            "kill_broker": 3,
            "stop_broker": 2,
            "kill_operator": 2,
            "cut_link_between_brokers": 3,
            "cut_client_from_broker": 3,
            "stall_connection": 3,
            "stall_metadata_stream": 2,
            "slow_link": 2,
            "delete_records": 1,
        },
        choices={
            **CLOSE,
            **THREE,
            "send_buffers": (
                SendBuffers(100, 200),
                SendBuffers(300, 100, deferred=True),
                SendBuffers(500, 300),
                SendBuffers(200, 1_000, deferred=True),
            ),
            "inside": (False, True),
            "latency_us": (LatencyUs(50, 500), LatencyUs(100, 5_000)),
            "lag_time_max_ms": (1_000, 5_000),
            "flap_wait_ms_max": (1_000,),
            "think_ms": ((1, 50), (10, 500)),
            "producers": (((-1, True), (-1, True)), ((-1, True), (-1, False), (0, False))),
            "consumers": (1, 2),
            "committers": (0, 2),
        },
    ),
}
