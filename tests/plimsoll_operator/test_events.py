"""Which occurrences become Events: each once, and again when it was undone between."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster, an_image

from plimsoll_core.cluster.records import BrokerFenced, BrokerUnfenced, Record
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.status.events import Events
from plimsoll_operator.status.record_events import occurrences

FENCED = BrokerFenced(cause="fenced on proof: gone", broker_id=BrokerId(1), broker_epoch=1)
BACK = BrokerUnfenced(cause="caught up", broker_id=BrokerId(1), broker_epoch=1)


class Written:
    """`EventApi`: what was written."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def create(self, kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        self.reasons.append(manifest["reason"])
        return manifest


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ((BACK, FENCED, BACK), ["BrokerUnfenced", "BrokerFenced", "BrokerUnfenced"]),
        ((FENCED, BACK, FENCED), ["BrokerFenced", "BrokerUnfenced", "BrokerFenced"]),
        ((FENCED, FENCED), ["BrokerFenced"]),
    ],
    ids=["back soon after its start", "fenced again", "the same twice"],
)
async def test_return_of_a_broker_is_told_however_soon_it_follows(
    records: tuple[Record, ...], told: list[str]
) -> None:
    api, image = Written(), an_image()
    events = Events(api, "operator", lambda: 0)
    for occurrence in occurrences(image, image, records):
        events.add(a_cluster(), occurrence)
    await events.flush()
    assert api.reasons == told
