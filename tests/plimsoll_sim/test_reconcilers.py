"""The simulator runs the operator that ships: which of its reconcilers, and how much of them."""

from __future__ import annotations

from collections import Counter

import pytest

from plimsoll_operator.leadership.led_cluster import LedCluster
from plimsoll_operator.reconcile import registry
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.work_queue import ReconcileQueue
from plimsoll_sim.cluster.run_options import Patience
from plimsoll_sim.cluster.world import World
from plimsoll_sim.runs.run import run
from plimsoll_sim.scenario.runner import play

STEPS = 1_500
RUNS = (("objects", 1), ("members", 4), ("members", 5))


def test_runs_reach_every_reconciler(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: Counter[Task] = Counter()
    shipped = ReconcileQueue._attempt

    async def counted(queue: ReconcileQueue[Work], work: Work) -> int | None:
        again = await shipped(queue, work)
        if again is None:
            handled[work.task] += 1
        return again

    monkeypatch.setattr(ReconcileQueue, "_attempt", counted)
    for profile, seed in RUNS:
        result = run(seed, STEPS, profile=profile)
        assert not result.sentence, f"{profile} {seed}: {result.outcome}: {result.sentence}"
    # No run has Users or schedules of Verifications: their Secrets, logins and starts are tried
    # against the API server in memory alone.
    assert handled.keys() == set(Task) - {Task.USER, Task.VERIFICATION_SCHEDULE}


def test_operator_leading_after_run_shows_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    settle = World.settle

    def settled(world: World, patience: Patience) -> None:
        settle(world, patience)
        shown.extend(host.metrics() for host in world.operators if host.active)

    monkeypatch.setattr(World, "settle", settled)
    assert run(3, 500).sentence == ""
    (text,) = shown
    assert b'plimsoll_unclean_elections_total{cluster="sim"' in text


def test_simulator_restarts_brokers_only_through_reconciler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roll = "cluster\nroll 2\nuntil rolled within=60s\nshow restarts\n"
    assert play(roll).outcome == "held"
    shipped = LedCluster._handle

    async def without_rolls(led: LedCluster, work: Work) -> None:
        if work.task is not Task.ROLLS:
            await shipped(led, work)

    monkeypatch.setattr(LedCluster, "_handle", without_rolls)
    assert play(roll).outcome == "liveness"


def test_bug_in_one_pass_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reconcile(*_: object) -> None:
        raise AssertionError("a bug of a pass")

    monkeypatch.setitem(registry.RECONCILERS, Task.ROLLS, reconcile)
    result = play("cluster\nroll 2\nuntil rolled within=60s\n")
    assert "a bug of a pass" in result.sentence
