"""A candidate without competitors: a local cluster's."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from plimsoll_operator.controller.outcome import Outcome
from plimsoll_operator.kube.kube_client import Kube
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.memory.transport import MemoryTransport
from plimsoll_operator.leadership import candidate
from plimsoll_operator.leadership.candidate import Candidate
from plimsoll_operator.leadership.lease import Lease
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
async def test_candidate_alone_leads_again_at_once_after_a_hand_over(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        slept.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(candidate.asyncio, "sleep", note)
    server = MemoryApiServer(wall_ms, lambda: "uid")
    kube = Kube(MemoryTransport(server))
    lease = Lease(kube, namespace="default", name="l", identity="me", wall_ms=wall_ms)
    leader = HandsOver()
    running = asyncio.ensure_future(Candidate(lease, leader, _no_objection, alone=alone).forever())
    async with asyncio.timeout(30):
        await leader.twice.wait()
    running.cancel()
    await asyncio.wait([running])
    assert (candidate.ALONE_S in slept) is alone
    assert (candidate.HAND_OVER_S in slept) is not alone
