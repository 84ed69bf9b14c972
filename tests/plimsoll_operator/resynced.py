"""A resync after the watch missed something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from plimsoll_operator.process.resync import _compare
from plimsoll_operator.reconcile.reconcile_term import Work


async def offered_by_resync(scene: Any) -> list[tuple[Any, Work]]:
    """By the key of its cluster; `scene`: `Moves` or `Rebalancings`, whose API server holds other
    objects than its cache."""
    offered: list[tuple[Any, Work]] = []
    queue = SimpleNamespace(
        offer=lambda key, work: offered.append((key, work)), seen=lambda found: None
    )
    parts = SimpleNamespace(objects=scene.objects, kube=scene.kube, options=scene.term.options)
    await _compare(parts, queue)  # type: ignore[arg-type]
    return offered
