"""A bug that is met in looking after one object: that object pays, and neither the others nor the
cluster's controller."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.plimsoll_operator.test_operator import Scene

from plimsoll_operator.api_server.stateful_sets import listed
from plimsoll_operator.controller import controller_term
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.leadership import object_failures
from plimsoll_operator.leadership.object_failures import ENDS_TERM, word_of
from plimsoll_operator.process import supervisor
from plimsoll_operator.reconcile import registry, work_queue
from plimsoll_operator.reconcile.logbroker.logbroker_status import BrokerMemory
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.status import status_writer
from plimsoll_operator.status.events import Events
from plimsoll_operator.status.operator_metrics import FAILING
from plimsoll_operator.status.status_writer import StatusDraft

OF = {"clusterRef": {"name": "main"}}
KINDS: dict[Task, tuple[Kind, dict[str, Any]]] = {
    Task.TOPIC: (resources.TOPICS, OF),
    Task.REASSIGNMENT: (
        resources.REASSIGNMENTS,
        {**OF, "moves": [{"topic": "orders", "awayFrom": [1]}]},
    ),
    Task.REBALANCE: (resources.REBALANCES, {**OF, "mode": "Full"}),
    Task.VERIFICATION: (
        resources.VERIFICATIONS,
        {**OF, "topic": "orders", "produce": {"records": 1}},
    ),
    Task.VERIFICATION_SCHEDULE: (
        resources.VERIFICATION_SCHEDULES,
        {
            "schedule": "0 2 * * *",
            "template": {
                **OF,
                "topic": "orders",
                "produce": {"records": 1},
                "allowExisting": True,
            },
        },
    ),
    Task.USER: (resources.USERS, {**OF, "authentication": {"scram": {}}}),
}
"""Kinds whose objects users make, and a spec of each."""
OF_THE_CLUSTER = (Task.CLUSTER, Task.ROLLS, Task.ABSENT_TOPICS)


class Bugs:
    """While `on`, a pass over `bad` meets one; the keys of other passes are in `done`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, task: Task, bad: str | None) -> None:
        self.on = True
        self.done: set[str] = set()
        shipped = registry.RECONCILERS[task]

        async def reconcile(term: Term, key: tuple[str, str]) -> PassResult:
            if self.on and bad in (None, key[1]):
                raise AssertionError(f"a bug with the password {len(self.done)}")
            self.done.add(key[1])
            return await shipped(term, key)

        monkeypatch.setitem(registry.RECONCILERS, task, reconcile)
        monkeypatch.setattr(work_queue, "BACKOFF_MS", 20)


@asynccontextmanager
async def led() -> AsyncIterator[Scene]:
    """An operator that leads `kafka/main`, and does so still at the end."""
    scene = Scene()
    running = await scene.run()
    await scene.until(lambda: bool(scene.parts.leaders))
    (leader,) = scene.parts.leaders.values()
    await asyncio.wait_for(leader.controller.wait_active(), 30)
    epoch = leader.controller.epoch
    try:
        yield scene
        assert list(scene.parts.leaders.values()) == [leader]
        assert leader.controller.active
        assert leader.controller.epoch == epoch, "no second term"
        assert "Leading" not in scene.parts.server.failures.counts
    finally:
        await scene.end(running)


async def made(scene: Scene, kind: Kind, name: str, spec: dict[str, Any]) -> None:
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "kafka"},
        "spec": spec,
    }
    await scene.parts.kube.create(kind, body)


def shown(scene: Scene, kind: Kind, name: str) -> dict[str, tuple[str, str, str]]:
    """An object's conditions, by type."""
    for one in listed(scene.server, kind):
        if one.metadata["name"] == name:
            conditions = (one.body.get("status") or {}).get("conditions") or ()
            return {c["type"]: (c["status"], c["reason"], c["message"]) for c in conditions}
    return {}


def says_bug(scene: Scene, kind: Kind, name: str) -> bool:
    return shown(scene, kind, name).get("Stalled", ("",) * 3)[:2] == ("True", registry.BUG)


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_bug_in_a_pass_costs_its_object_alone(task: Task, monkeypatch: pytest.MonkeyPatch):
    bugs = Bugs(monkeypatch, task, "bad")
    kind, spec = KINDS[task]
    async with led() as scene:
        await made(scene, kind, "bad", spec)
        await made(scene, kind, "good", spec)
        await scene.until(lambda: says_bug(scene, kind, "bad") and "good" in bugs.done)
        assert "bad" not in bugs.done
        assert not says_bug(scene, kind, "good")
        assert not says_bug(scene, resources.LOG_CLUSTERS, "main")
        _, _, text = shown(scene, kind, "bad")["Stalled"]
        assert "AssertionError" in text
        assert "password" not in text
        assert shown(scene, kind, "bad")["Ready"][:2] == ("False", registry.BUG)
        assert scene.parts.server.failures.counts[word_of(task)] >= 1
        bugs.on = False
        await scene.until(lambda: not says_bug(scene, kind, "bad") and "bad" in bugs.done)


@pytest.mark.parametrize("task", OF_THE_CLUSTER, ids=lambda task: task.name)
async def test_bug_in_cluster_pass_is_shown_only(task: Task, monkeypatch: pytest.MonkeyPatch):
    bugs = Bugs(monkeypatch, task, None)
    async with led() as scene:
        await made(scene, resources.TOPICS, "good", OF)
        await scene.until(lambda: says_bug(scene, resources.LOG_CLUSTERS, "main"))
        await scene.until(lambda: bool(shown(scene, resources.TOPICS, "good")))
        assert (
            str(Work(task, ("kafka", "main")))
            in shown(scene, resources.LOG_CLUSTERS, "main")["Stalled"][2]
        )
        bugs.on = False
        await scene.until(lambda: not says_bug(scene, resources.LOG_CLUSTERS, "main"))


async def test_bug_in_broker_pass_spares_other_brokers(
    monkeypatch: pytest.MonkeyPatch,
):
    bugs = Bugs(monkeypatch, Task.BROKER, "main-1")
    async with led() as scene:
        await scene.until(lambda: {"main-0", "main-2"} <= set(scene.names(resources.LOG_BROKERS)))
        await scene.until(lambda: says_bug(scene, resources.LOG_CLUSTERS, "main"))
        assert "main-1" not in scene.names(resources.LOG_BROKERS)
        bugs.on = False
        await scene.until(lambda: "main-1" in scene.names(resources.LOG_BROKERS))


def test_every_kind_of_work_survives_a_bug():
    assert {*KINDS, *OF_THE_CLUSTER, Task.BROKER} == set(Task) - ENDS_TERM
    assert {word_of(task) for task in set(Task) - ENDS_TERM} <= set(FAILING)


async def test_later_namesake_shows_no_bug(
    monkeypatch: pytest.MonkeyPatch,
):
    Bugs(monkeypatch, Task.USER, "bad")
    kind, spec = KINDS[Task.USER]
    async with led() as scene:
        await made(scene, kind, "bad", spec)
        await scene.until(lambda: says_bug(scene, kind, "bad"))
        (leader,) = scene.parts.leaders.values()
        monkeypatch.setattr(work_queue, "BACKOFF_MS", 60_000)
        found = scene.parts.objects.users.get(("kafka", "bad"))
        assert found is not None
        again = {"uid": "other", "name": "bad", "namespace": "kafka", "generation": 1}
        scene.parts.objects.users.put({"metadata": again, "spec": spec})
        target = status_writer.Target(kind, "kafka", "bad")
        draft = registry.draft_of(leader.term, target)
        assert draft is None or "Stalled" not in {c.type for c in draft.status.conditions}


async def test_bug_in_topic_status_spares_others(
    monkeypatch: pytest.MonkeyPatch,
):
    row = registry.BY_RESOURCE[resources.TOPICS]
    on = True

    def render(term: Term, key: tuple[str, str]) -> StatusDraft | None:
        if on and key[1] == "bad":
            raise AssertionError("a bug")
        return row.render(term, key)

    broken = dataclasses.replace(row, render=render)
    monkeypatch.setitem(registry.BY_RESOURCE, resources.TOPICS, broken)
    monkeypatch.setattr(status_writer, "FAILED_MS", 20)
    async with led() as scene:
        await made(scene, resources.TOPICS, "bad", OF)
        await made(scene, resources.TOPICS, "good", OF)
        await scene.until(lambda: says_bug(scene, resources.TOPICS, "bad"))
        await scene.until(lambda: bool(shown(scene, resources.TOPICS, "good")))
        assert shown(scene, resources.TOPICS, "bad")["Ready"][:2] == ("Unknown", registry.BUG)
        assert scene.parts.server.failures.counts["Status"] >= 1
        on = False
        await scene.until(
            lambda: (
                "Stalled" not in shown(scene, resources.TOPICS, "bad")
                and bool(shown(scene, resources.TOPICS, "bad"))
            )
        )


async def test_bug_in_cluster_status_keeps_choices(
    monkeypatch: pytest.MonkeyPatch,
):
    row = registry.BY_RESOURCE[resources.LOG_CLUSTERS]
    on = False

    def render(term: Term, key: tuple[str, str]) -> StatusDraft | None:
        if on:
            raise AssertionError("a bug")
        return row.render(term, key)

    broken = dataclasses.replace(row, render=render)
    monkeypatch.setitem(registry.BY_RESOURCE, resources.LOG_CLUSTERS, broken)

    def status() -> dict[str, Any]:
        (one,) = listed(scene.server, resources.LOG_CLUSTERS)
        return dict(one.body.get("status") or {})

    async with led() as scene:
        await scene.until(lambda: "versions" in status() and "certificates" in status())
        chosen = {part: status()[part] for part in ("versions", "certificates")}
        on = True
        (leader,) = scene.parts.leaders.values()
        leader.effects.mark_cluster()
        await scene.until(lambda: says_bug(scene, resources.LOG_CLUSTERS, "main"))
        assert {part: status()[part] for part in chosen} == chosen


async def test_bug_in_broker_look_spares_others(
    monkeypatch: pytest.MonkeyPatch,
):
    shipped, looked = BrokerMemory.look, set()

    def look(memory: BrokerMemory, term: Term, broker_id: Any) -> None:
        if broker_id == 0:
            raise AssertionError("a bug")
        looked.add(int(broker_id))
        shipped(memory, term, broker_id)

    monkeypatch.setattr(BrokerMemory, "look", look)
    async with led() as scene:
        await scene.until(lambda: says_bug(scene, resources.LOG_BROKERS, "main-0"))
        await scene.until(lambda: looked >= {1, 2})
        assert not says_bug(scene, resources.LOG_BROKERS, "main-1")


async def test_bug_in_absence_search_spares_other_kinds(
    monkeypatch: pytest.MonkeyPatch,
):
    searched: set[str] = set()

    def absent(term: Term) -> tuple[Work, ...]:
        raise AssertionError("a bug")

    def counted(row: Any) -> Any:
        def search(term: Term) -> list[Work]:
            searched.add(row.resource.kind)
            return list(row.absent(term))

        return dataclasses.replace(row, absent=search)

    first, *others = registry.OF_A_CLUSTER
    broken = (dataclasses.replace(first, absent=absent), *map(counted, others))
    monkeypatch.setattr(registry, "OF_A_CLUSTER", broken)
    async with led() as scene:
        await scene.until(lambda: says_bug(scene, resources.LOG_CLUSTERS, "main"))
        assert searched == {row.resource.kind for row in others}


async def test_bug_in_event_writing_spares_the_leader(monkeypatch: pytest.MonkeyPatch):
    async def write(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(Events, "_write", write)
    async with led() as scene:
        await scene.until(lambda: says_bug(scene, resources.LOG_CLUSTERS, "main"))


async def test_bug_status_does_not_trigger_immediate_retry(
    monkeypatch: pytest.MonkeyPatch,
):
    Bugs(monkeypatch, Task.TOPIC, "bad")
    monkeypatch.setattr(work_queue, "BACKOFF_MS", 60_000)
    async with led() as scene:
        await made(scene, resources.TOPICS, "bad", OF)
        await scene.until(lambda: says_bug(scene, resources.TOPICS, "bad"))
        await made(scene, resources.TOPICS, "good", OF)
        await scene.until(lambda: bool(shown(scene, resources.TOPICS, "good")))
        assert scene.parts.server.failures.counts["ReconcileTopic"] == 1


async def ended(scene: Scene, running: asyncio.Task[None]) -> BaseException:
    """What ended the leader."""
    met: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    shipped = scene.parts.server.failures.met

    def hear(kind: str, error: BaseException, costs: str = "one connection") -> None:
        shipped(kind, error, costs)
        if kind == "Leading" and not met.done():
            met.set_result(error)

    scene.parts.server.failures.met = hear  # type: ignore[method-assign]
    return await asyncio.wait_for(met, 30)


async def test_bug_in_decision_ends_the_leader(
    monkeypatch: pytest.MonkeyPatch,
):
    shipped = controller_term.decide

    def decide(image: Any, soft: Any, request: Any, *rest: Any) -> Any:
        assert not type(request).__name__.startswith("DeclareTopic"), "a bug in a decision"
        return shipped(image, soft, request, *rest)

    monkeypatch.setattr(controller_term, "decide", decide)
    monkeypatch.setattr(supervisor, "CRASH_BACKOFF_S", 60)
    scene = Scene()
    running = await scene.run()
    heard = asyncio.ensure_future(ended(scene, running))
    await made(scene, resources.TOPICS, "orders", OF)
    error = await heard
    assert "a bug in a decision" in repr(error)
    assert "ReconcileTopic" not in scene.parts.server.failures.counts
    assert not scene.parts.leaders
    await scene.end(running)


async def test_bug_in_log_repair_ends_the_leader(
    monkeypatch: pytest.MonkeyPatch,
):
    Bugs(monkeypatch, Task.LOG, None)
    monkeypatch.setattr(supervisor, "CRASH_BACKOFF_S", 60)
    scene = Scene()
    running = await scene.run()
    heard = asyncio.ensure_future(ended(scene, running))
    await scene.until(lambda: bool(scene.parts.leaders))
    (leader,) = scene.parts.leaders.values()
    await asyncio.wait_for(leader.controller.wait_active(), 30)
    leader.offer(Work(Task.LOG, ("kafka", "main")))
    assert "a bug" in repr(await heard)
    await scene.end(running)


def test_bug_place_is_our_innermost_line():
    bad: Any = None
    with pytest.raises(AttributeError) as met:
        registry.uid_of(bad, status_writer.Target(resources.TOPICS, "kafka", "orders"))
    assert object_failures._place(met.tb).startswith("plimsoll_operator/reconcile/registry.py:")
