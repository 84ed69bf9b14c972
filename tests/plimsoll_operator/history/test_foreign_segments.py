"""ConfigMaps that look like the history's and are none of it, and segments that contradict their
names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.plimsoll_operator.builders import isr_changed
from tests.plimsoll_operator.history.test_keeper import (
    CLUSTER_ID,
    Process,
    archived,
    isrs,
    keeping_history,
    segments_in,
)
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.plimsoll_operator.test_group_commit import MemoryLog

from plimsoll_operator.history.segment_stores import PAGE_ITEMS, KubeStore
from plimsoll_operator.history.segments import rows_of
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, Object
from plimsoll_operator.kube.resources import CONFIG_MAPS


def a_config_map(like: Object, name: str, **header: Any) -> Object:
    """With the labels and the content of `like`, and another name and header."""
    stated = json.loads(like["data"]["header"]) | header
    meta = {"name": name, "namespace": "kafka", "labels": like["metadata"]["labels"]}
    return {**like, "metadata": meta, "data": {"header": json.dumps(stated)}}


async def test_foreign_config_map_with_history_labels_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube, log = ScriptedKube(), MemoryLog()
    first = Process(log, KubeStore(kube, "kafka", "main", CLUSTER_ID))
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        await first.keeper.settle()
    (own,) = (await kube.list(CONFIG_MAPS, "kafka")).items
    foreign = a_config_map(own, "theirs-000001", sequence=1, endOffset=10**9)
    kube.put(CONFIG_MAPS, foreign)
    store = KubeStore(kube, "kafka", "main", CLUSTER_ID)
    second = Process(log, store)
    await second.lead()
    async with keeping_history(second):
        await second.commit(isr_changed(0, (0, 1)))
        await second.keeper.settle()
    assert isrs(await archived(store))[-1:] == [(0, 1)]
    assert kube.find(CONFIG_MAPS, "kafka", "theirs-000001")["data"] == foreign["data"]
    assert caplog.text.count("ConfigMap kafka/theirs-000001") == 1


@pytest.mark.parametrize("header", [{"sequence": 7}, {"clusterId": "another"}])
async def test_segment_contradicting_its_name_is_not_trusted(
    header: dict[str, Any],
) -> None:
    kube, log = ScriptedKube(), MemoryLog()
    store = KubeStore(kube, "kafka", "main", CLUSTER_ID)
    first = Process(log, store)
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        await first.keeper.settle()
    (own,) = (await kube.list(CONFIG_MAPS, "kafka")).items
    name = own["metadata"]["name"].removesuffix("0") + "1"
    kube.put(CONFIG_MAPS, a_config_map(own, name, **{"endOffset": 10**9, "sequence": 1, **header}))
    second = Process(log, KubeStore(kube, "kafka", "main", CLUSTER_ID))
    await second.lead()
    async with keeping_history(second):
        await second.commit(isr_changed(0, (0, 1)))
        await second.keeper.settle()
    found = await segments_in(store)
    assert [stored.header.sequence for stored, _ in found] == [0, 1, 2]
    assert isrs(rows_of(found[-1][1]))[-1:] == [(0, 1)]


async def test_archives_config_maps_are_read_in_pages() -> None:
    """Of an author of ConfigMaps, or of a large history, they exceeded the operator's memory."""
    kube, log = ScriptedKube(), MemoryLog()
    store = KubeStore(kube, "kafka", "main", CLUSTER_ID)
    first = Process(log, store)
    await first.lead()
    async with keeping_history(first):
        await first.make_topic()
        await first.keeper.settle()
    (own,) = (await kube.list(CONFIG_MAPS, "kafka")).items
    for number in range(2 * PAGE_ITEMS):
        kube.put(CONFIG_MAPS, a_config_map(own, f"theirs-{number:06d}"))
    limits = set()
    handle = kube.server.handle

    def handled(request: HttpRequest) -> HttpResponse:
        limits.add(request.params.get("limit"))
        return handle(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kube.server, "handle", handled)
        assert len(await segments_in(store)) == 1
    assert limits == {str(PAGE_ITEMS)}
