"""Which occurrences become Events: each once, and again when it was undone between."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster, an_image, isr_changed, with_topic

from plimsoll_core.cluster.model import Reassignment, ReassignmentObject, TopicObject
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokerUnfenced,
    ReassignmentNoted,
    Record,
)
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.status.events import About, Events, Occurrence
from plimsoll_operator.status.record_events import occurrences

FENCED = BrokerFenced(cause="fenced on proof: gone", broker_id=BrokerId(1), broker_epoch=1)
BACK = BrokerUnfenced(cause="caught up", broker_id=BrokerId(1), broker_epoch=1)


class Written:
    """`EventApi`: what was written."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.places: list[tuple[str, str, str, str]] = []

    async def create(self, kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        self.reasons.append(manifest["reason"])
        place, namespace = manifest["regarding"], manifest["metadata"]["namespace"]
        assert place["namespace"] == namespace, "kubectl describe looks in the object's namespace"
        self.places.append((place["kind"], namespace, place["name"], place["uid"]))
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
async def test_return_of_broker_is_reported_however_soon(
    records: tuple[Record, ...], told: list[str]
) -> None:
    api, image = Written(), an_image()
    events = Events(api, "operator", lambda: 0)
    for occurrence in occurrences(image, image, records):
        events.add(a_cluster(), occurrence)
    await events.flush()
    assert api.reasons == told


async def test_event_is_reported_on_object_and_cluster() -> None:
    api, cluster = Written(), a_cluster()
    events = Events(api, "operator", lambda: 0)
    about = About("Topic", "shop", "orders", "u1")
    events.add(cluster, Occurrence(key="k", reason="TopicRefused", message="no.", about=about))
    await events.flush()
    own = ("LogCluster", *cluster.key, cluster.metadata.uid)
    assert api.places == [own, ("Topic", "shop", "orders", "u1")]


async def test_moves_and_unclean_elections_are_about_their_objects() -> None:
    holder = TopicObject(namespace="shop", name="orders", uid="u1")
    image = with_topic(an_image(), ((0, 1, 2),), holder)
    unclean = isr_changed(0, (1,), leader=BrokerId(1), cause="recovery: the last to answer")
    mover = ReassignmentObject(namespace="kafka", name="away", uid="u2")
    begun = ReassignmentNoted(
        cause="x", reassignment=Reassignment(object=mover, phase="Running", total=1)
    )
    told = {one.reason: one.about for one in occurrences(image, image, (unclean, begun))}
    assert told == {
        "UncleanElection": About("Topic", "shop", "orders", "u1"),
        "ReassignmentRunning": About("Reassignment", "kafka", "away", "u2"),
    }
