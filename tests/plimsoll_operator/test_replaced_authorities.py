"""The authority of clients: replaced when it is asked for, and by no clock that is wrong."""

from __future__ import annotations

import pytest
from tests.plimsoll_operator.certified_scene import BEGIN_MS, Certified

from plimsoll_core.security.client_certificates import (
    OWN_AUTHORITY,
)
from plimsoll_operator.pki.rotation import AGAIN_MS, DAY_MS
from plimsoll_operator.reconcile.cluster.authorities import certificate_times
from plimsoll_operator.reconcile.shared.certificate_signing import APART_MS
from plimsoll_operator.reconcile.stall_causes import StallSource


@pytest.fixture
async def scene() -> Certified:
    made = Certified()
    made.apply()
    ready = await made.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    return made


async def test_client_authority_is_replaced_step_by_step(
    scene: Certified,
) -> None:
    (first,), before = scene.believed[OWN_AUTHORITY], scene.shown
    scene.ask("1")
    await scene.reconciled()
    assert scene.believed[OWN_AUTHORITY][0] == first, "it still signs"
    (_, announced) = scene.believed[OWN_AUTHORITY]
    assert scene.shown == before
    scene.time_ms += AGAIN_MS
    scene.ask("2")
    await scene.reconciled()
    assert scene.believed[OWN_AUTHORITY] == (announced, first)
    assert [one.sha256 for one in scene.committed] == [scene.shown, before]
    scene.time_ms += AGAIN_MS
    scene.ask("3")
    await scene.reconciled()
    assert scene.believed[OWN_AUTHORITY] == (announced,)


async def test_authority_expiry_is_a_metric_while_used(
    scene: Certified,
) -> None:
    ((listener, kind, ends_ms),) = certificate_times(scene.term).shown()
    assert (listener, kind, ends_ms) == ("", "clients-authority", BEGIN_MS + 1095 * DAY_MS)
    scene.declare(listeners=[{"name": "plain", "port": 9092}])
    await scene.look()
    assert list(certificate_times(scene.term).shown()) == []


@pytest.mark.parametrize("days", [61, 3 * 365, 4 * 365])
async def test_operator_clock_ahead_replaces_nothing(scene: Certified, days: int) -> None:
    authority, shown = scene.authority, scene.shown
    scene.kube.said_ms = BEGIN_MS
    scene.time_ms += days * DAY_MS
    await scene.reconciled()
    assert (scene.authority, scene.shown) == (authority, shown)
    cause = scene.term.shown.stall_causes[StallSource.CLOCK]
    assert (cause.reason, "ahead" in cause.message) == ("ClockAhead", True)
    scene.kube.said_ms = scene.time_ms - APART_MS
    await scene.reconciled()
    assert scene.shown != shown
    assert StallSource.CLOCK not in scene.term.shown.stall_causes


async def test_api_server_clock_ahead_replaces_nothing(scene: Certified) -> None:
    authority, shown = scene.authority, scene.shown
    scene.kube.said_ms = BEGIN_MS + 4 * 365 * DAY_MS
    await scene.reconciled()
    assert (scene.authority, scene.shown) == (authority, shown)
    assert StallSource.CLOCK not in scene.term.shown.stall_causes
