"""When a candidate leads again: alone, as a local one does, and after answers that were lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.controller.controller_term import Outcome
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.leadership import candidate
from plimsoll_operator.leadership.candidate import Candidate
from plimsoll_operator.leadership.lease import Acquired, Lease, LeaseLoss
from plimsoll_operator.process_clocks import wall_ms


class HandsOver:
    """Leads, and ends each term at once because half of the brokers were lost."""

    def __init__(self) -> None:
        self.controller = SimpleNamespace(name="main", confirm=lambda _: None)
        self.terms = 0
        self.twice = asyncio.Event()

    async def run(self, vacant_ms: int = 0) -> Outcome:
        self.terms += 1
        if self.terms == 2:
            self.twice.set()
        return Outcome.HANDED_OVER

    async def stop(self) -> None: ...

    async def say(self, cause: object) -> None: ...


async def _no_objection() -> None:
    return None


@pytest.mark.parametrize("alone", [True, False])
async def test_sole_candidate_leads_again_after_hand_over(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        slept.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(candidate.asyncio, "sleep", note)
    server = MemoryApiServer(wall_ms, lambda: "uid")
    kube = KubeApi(MemoryTransport(server))
    lease = Lease(kube, namespace="default", name="l", identity="me", wall_ms=wall_ms)
    leader = HandsOver()
    running = asyncio.ensure_future(Candidate(lease, leader, _no_objection, alone=alone).forever())
    async with asyncio.timeout(30):
        await leader.twice.wait()
    running.cancel()
    await asyncio.wait([running])
    assert (candidate.ALONE_S in slept) is alone
    assert (candidate.HAND_OVER_S in slept) is not alone


class WaitsForPerson(HandsOver):
    """Cannot restore its metadata log without a person."""

    def __init__(self, terms: int) -> None:
        super().__init__()
        self.controller.choice = "11-4c26ea60dfadd7a4"
        self._terms = terms

    async def run(self, vacant_ms: int = 0) -> Outcome:
        self.terms += 1
        if self.terms == self._terms:
            self.twice.set()
        return Outcome.STALLED


class CountedLease:
    """Always free, and held until cancelled."""

    def __init__(self) -> None:
        self.acquired = 0

    async def acquire(self) -> Acquired:
        self.acquired += 1
        return Acquired(vacant_ms=None, previous=None)

    async def hold(self, _: object) -> LeaseLoss:
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    async def release(self) -> None: ...


async def test_lease_is_kept_while_person_must_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed over once at first, since another operator may hear more brokers; then ever more
    rarely."""
    monkeypatch.setattr(candidate, "STALLED_BACKOFF_S", 0.01)
    monkeypatch.setattr(candidate, "KEPT_S_MAX", 60.0)
    lease, leader = CountedLease(), WaitsForPerson(terms=30)
    running = asyncio.ensure_future(
        Candidate(cast("Lease", lease), leader, _no_objection).forever()  # type: ignore[arg-type]
    )
    async with asyncio.timeout(30):
        await leader.twice.wait()
    running.cancel()
    await asyncio.wait([running])
    assert 2 <= lease.acquired <= 8


class Leads(HandsOver):
    """Leads until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = asyncio.Event()
        self.said: list[object] = []

    async def run(self, vacant_ms: int = 0) -> Outcome:
        self.leads.set()
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    async def say(self, cause: object) -> None:
        self.said.append(cause)


@pytest.mark.parametrize("lost", ["refused", "unanswered"])
async def test_lost_answer_is_no_objection_to_leading(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call that failed right after the Lease was won left it to others for ten seconds, and
    there may be none: nobody led meanwhile.  One without an answer was waited for as long."""
    monkeypatch.setattr(candidate, "ASKED_S", 0.01)
    monkeypatch.setattr(candidate, "ASKED_AGAIN_S", 0.01)
    asked: list[None] = []

    async def objection() -> tuple[str, str] | None:
        asked.append(None)
        if len(asked) > 2:
            return None
        if lost == "unanswered":
            await asyncio.Event().wait()
        raise Unavailable(0, "no answer")

    server = MemoryApiServer(wall_ms, lambda: "uid")
    lease = Lease(
        KubeApi(MemoryTransport(server)),
        namespace="default",
        name="l",
        identity="me",
        wall_ms=wall_ms,
    )
    leader = Leads()
    running = asyncio.ensure_future(Candidate(lease, leader, objection).forever())
    async with asyncio.timeout(30):
        await leader.leads.wait()
    running.cancel()
    await asyncio.wait([running])
    assert (len(asked), leader.said) == (3, [])


async def test_cancelled_candidate_leaves_no_pending_query() -> None:
    asking, ended = asyncio.Event(), list[str]()

    async def objection() -> None:
        asking.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("here")

    kube = KubeApi(MemoryTransport(MemoryApiServer(wall_ms, lambda: "uid")))
    lease = Lease(kube, namespace="default", name="l", identity="me", wall_ms=wall_ms)
    running = asyncio.ensure_future(Candidate(lease, Leads(), objection).forever())
    async with asyncio.timeout(30):
        await asking.wait()
    running.cancel()
    await asyncio.wait([running])
    assert ended == ["here"]


async def test_lease_lost_during_objection_query_is_sought_again() -> None:
    class Lost(Lease):
        acquired = 0

        async def acquire(self) -> Acquired:
            self.acquired += 1
            return Acquired(vacant_ms=None, previous=None)

        async def hold(self, renewed: object) -> LeaseLoss:
            return LeaseLoss.UNRENEWED

        async def release(self) -> None: ...

    again = asyncio.Event()

    async def objection() -> None:
        if lease.acquired > 1:
            again.set()
        await asyncio.Event().wait()

    kube = KubeApi(MemoryTransport(MemoryApiServer(wall_ms, lambda: "uid")))
    lease = Lost(kube, namespace="default", name="l", identity="me", wall_ms=wall_ms)
    leader = Leads()
    running = asyncio.ensure_future(Candidate(lease, leader, objection).forever())
    async with asyncio.timeout(30):
        await again.wait()
    running.cancel()
    await asyncio.wait([running])
    assert not leader.leads.is_set()
