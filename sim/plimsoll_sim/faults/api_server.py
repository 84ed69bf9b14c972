"""Faults of the Kubernetes API server and of etcd behind it."""

from __future__ import annotations

import random

from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.faults.processes import any_operator

LOSSY_SHARE = 0.1
"""Share of requests that are lost or carried out late, and of replies that are lost, while the API
server is degraded."""
THROTTLED_SHARE = 0.05
BACKUP_SHARE = 0.7
"""Probability that etcd's backup is renewed instead of restored."""


def cut_operator_from_api_server(context: FaultContext, rng: random.Random) -> str | None:
    host = any_operator(context, rng)
    if host is None or host.process is None:
        return None
    process, away_from = host.process, context.world.weather.away_from
    away_from[process] = None

    def mend() -> None:
        away_from.pop(process, None)

    context.heal_later(mend)
    return host.name


def stop_api_server(context: FaultContext, _: random.Random) -> str:
    weather = context.world.weather
    weather.down = True

    def start() -> None:
        weather.down = False

    context.heal_later(start)
    return "refuses"


def hang_api_server(context: FaultContext, _: random.Random) -> str:
    weather = context.world.weather
    weather.hung = True

    def resume() -> None:
        weather.hung = False

    context.heal_later(resume)
    return "does not answer"


def degrade_api_server(context: FaultContext, _: random.Random) -> str:
    """Degrade the API server: it loses requests and replies, carries some requests out late, and
    throttles."""
    weather = context.world.weather
    weather.lose_request, weather.lose_reply = LOSSY_SHARE, LOSSY_SHARE
    weather.late, weather.throttle = LOSSY_SHARE, THROTTLED_SHARE

    def mend() -> None:
        weather.lose_request = weather.lose_reply = weather.late = weather.throttle = 0.0

    context.heal_later(mend)
    return "loses, delays, throttles"


def restore_etcd(context: FaultContext, rng: random.Random) -> str | None:
    """Restore etcd to a backup, at most once in a run; otherwise renew the backup."""
    world = context.world
    if context.etcd_backup.revision == world.etcd.revision or world.ghost.restored:
        return None
    if rng.random() < BACKUP_SHARE:
        context.etcd_backup = world.etcd.backup()
        return None
    sequence = world.ghost.sequence
    world.etcd.restore(context.etcd_backup)
    world.ghost.went_back()
    world.expect_liveness = False  # nothing is committed again until a person decides
    return f"from batch {sequence} on"
