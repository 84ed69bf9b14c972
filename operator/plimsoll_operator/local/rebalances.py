"""Rebalances of a local cluster: the files' are planned and carried out, what is in no file goes
back.

A file has no uid: an object is told from another by its name and by what it wants.  There is nobody
to write a status to, so the log tells how they are; the hash that a plan is approved by too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID, uuid5

from msgspec.structs import replace

from plimsoll_core.messages.rebalances import RebalanceObjectGone, RebalanceState
from plimsoll_core.messages.requests import Refused
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.clocks import wall_ms
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.reconcile.rebalance.planning import (
    Deciding,
    RebalancePass,
    Rebalancing,
)

logger = logging.getLogger("plimsoll.local")

LOOK_MS = 1_000
OPEN = ("Beginning", "Running")


def with_uid(found: Rebalance, names: UUID) -> Rebalance:
    """The same name and the same wish are the same object."""
    if found.metadata.uid:
        return found
    spec = found.spec
    wish = f"{spec.mode} {sorted(spec.brokers or ())}"
    uid = str(uuid5(names, "/".join((*found.key, wish))))
    return replace(found, metadata=replace(found.metadata, uid=uid))


class Rebalances:
    """`drop` first, then `look` once, or `run` for ever."""

    def __init__(self, controller: Controller, wanted: Sequence[Rebalance]) -> None:
        self._controller = controller
        self._wanted = {found.metadata.uid: found for found in wanted}
        self._said: dict[str, str] = {}
        self._rebalancing = Rebalancing(
            Deciding(
                image=lambda: controller.image,
                soft=lambda: controller.soft,
                settings=lambda: controller.settings,
                now_ms=lambda: controller.now_ms,
                wall_ms=wall_ms,
                ask=controller.request,
            )
        )

    async def run(self) -> None:
        while True:
            await self.drop()
            await self.look()
            await asyncio.sleep(LOOK_MS / 1000)

    async def drop(self) -> None:
        """What is in no file any more."""
        for uid, row in self._controller.image.rebalances.items():
            if uid not in self._wanted:
                request = RebalanceObjectGone(object=row.object, wall_ms=wall_ms())
                answer = await self._controller.request(request)
                if isinstance(answer, RebalanceState):
                    self._say(row.object.name, " ".join(("rolled back", answer.message)).strip())

    async def look(self) -> None:
        for uid, found in self._wanted.items():
            row = self._controller.image.rebalances.get(uid)
            if row is None or row.phase in OPEN:
                seen = await self._rebalancing.look(found)
                self._say(found.metadata.name, _text(seen))

    def _say(self, name: str, text: str) -> None:
        if text and self._said.get(name) != text:
            self._said[name] = text
            logger.info("Rebalance %s: %s", name, text)


def _text(seen: RebalancePass) -> str:
    answer = seen.answer
    if isinstance(answer, Refused):
        return answer.message
    if answer is not None:
        return " ".join(filter(None, (answer.phase, answer.message)))
    planned = None if seen.sketch is None else seen.sketch.planned
    if not isinstance(planned, Planned):
        return ""
    plan = planned.plan
    return (
        f"{plan.moved_replicas} replicas ({binary(plan.copied_bytes)} as far as known) would be"
        f" copied in {planned.waves} waves; approvedPlan: {planned.hash} approves that."
    )
