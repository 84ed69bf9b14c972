"""What lists and watches show.  Part of `contract`."""

import asyncio
import json

import pytest
from tests.plimsoll_operator.kube.contract_server import (
    ContractServer,
    event,
    labelled,
    next_types,
    watch_request,
    watching,
)

from plimsoll_operator.kube.errors import ApiError, Rejected
from plimsoll_operator.kube.kube_api import HttpRequest
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    CORE_EVENTS,
)

# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app=x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x)", ["b", "c"]),
        ("app=x,tier=1", ["a"]),
        ("app=x,tier=2", []),
    ],
)
async def test_list_is_selected_by_labels(api: ContractServer, selector: str, names: list[str]):
    for name, labels in (("a", {"app": "x", "tier": "1"}), ("b", {"app": "y"}), ("c", {})):
        await api.kube.create(api.topics, labelled(api.topic(name), labels))
    found = await api.kube.list(api.topics, api.namespace, label_selector=selector)
    assert [item["metadata"]["name"] for item in found.items] == names


async def test_list_is_selected_by_fields(api: ContractServer):
    await api.kube.create(api.topics, api.topic("a"))
    await api.kube.create(api.topics, api.topic("b", clusterRef={"name": "other"}))
    for selector in ("metadata.name=b", "spec.clusterRef.name=other"):
        found = await api.kube.list(api.topics, api.namespace, field_selector=selector)
        assert [item["metadata"]["name"] for item in found.items] == ["b"]
    with pytest.raises(Rejected, match=r"field label not supported: spec\.partitions"):
        await api.kube.list(api.topics, api.namespace, field_selector="spec.partitions=3")


async def test_events_are_selected_by_their_object_and_reason(api: ContractServer):
    for name, reason in (("a", "FailedCreate"), ("b", "Other")):
        await api.kube.create(CORE_EVENTS, event(api, name, reason))
    selector = "involvedObject.uid=u,reason=FailedCreate"
    found = await api.kube.list(CORE_EVENTS, api.namespace, field_selector=selector)
    assert [item["metadata"]["name"] for item in found.items] == ["a"]


async def test_list_of_builtin_kind_omits_item_kinds(api: ContractServer):
    await api.kube.create(CONFIG_MAPS, api.config_map())
    await api.kube.create(api.topics, api.topic())
    config_maps = (await api.kube.list(CONFIG_MAPS, api.namespace)).items
    topics = (await api.kube.list(api.topics, api.namespace)).items
    assert all("kind" not in item for item in config_maps)
    assert [(item["kind"], item["apiVersion"]) for item in topics] == [
        ("Topic", api.topics.api_version)
    ]


async def test_pages_come_from_the_first_pages_snapshot(api: ContractServer):
    for name in ("a", "b", "c"):
        await api.kube.create(api.topics, api.topic(name))
    path = api.topics.path(api.namespace)
    first = json.loads((await api.send("GET", path, params={"limit": "2"})).body)
    await api.kube.create(api.topics, api.topic("bb"))
    await api.kube.create(api.topics, api.topic("d"))
    token = first["metadata"]["continue"]
    rest = await api.send("GET", path, params={"limit": "2", "continue": token})
    second = json.loads(rest.body)
    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == ["a", "b", "c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_list_can_be_of_metadata_alone(api: ContractServer):
    await api.kube.create(CONFIG_MAPS, api.config_map(labels={"a": "b"}))
    found = await api.kube.list(
        CONFIG_MAPS, api.namespace, label_selector="a=b", metadata_only=True
    )
    (item,) = found.items
    assert (item["metadata"]["name"], "data" in item) == ("one", False)


async def test_first_is_any_object_that_is_selected(api: ContractServer):
    await api.kube.create(api.topics, labelled(api.topic("a"), {"app": "x"}))
    found = await api.kube.first(api.topics, api.namespace, label_selector="app=x")
    assert found is not None
    assert await api.kube.first(api.topics, api.namespace, label_selector="app=y") is None


# --- watches --------------------------------------------------------------------------------------


async def test_watch_tells_every_change_after_the_list(api: ContractServer):
    listed = await api.kube.list(CONFIG_MAPS, api.namespace)
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    await api.kube.merge(CONFIG_MAPS, api.namespace, "one", {"data": {"a": "2"}})
    async with watching(api, listed.resource_version, field="metadata.name=one") as lines:
        assert await next_types(lines, 2) == ["ADDED", "MODIFIED"]
        await api.kube.delete(CONFIG_MAPS, api.namespace, "one", uid=made["metadata"]["uid"])
        assert await next_types(lines, 1) == ["DELETED"]


async def test_watch_reports_an_object_no_longer_selected(api: ContractServer):
    body = api.config_map(labels={"app": "x"})
    await api.kube.create(CONFIG_MAPS, body)
    listed = await api.kube.list(CONFIG_MAPS, api.namespace)
    async with watching(api, listed.resource_version, label="app=x") as lines:
        for value in ("y", "x"):
            labels = {"metadata": {"labels": {"app": value}}}
            await api.kube.merge(CONFIG_MAPS, api.namespace, "one", labels)
        assert await next_types(lines, 2) == ["DELETED", "ADDED"]


async def test_watch_of_metadata_shows_no_more(api: ContractServer):
    listed = await api.kube.list(CONFIG_MAPS, api.namespace)
    await api.kube.create(CONFIG_MAPS, api.config_map(labels={"app": "x"}))
    changes = api.kube.changes(
        CONFIG_MAPS, api.namespace, "app=x", listed.resource_version, metadata_only=True
    )
    async with asyncio.timeout(30):
        change = await anext(changes)
    await changes.aclose()
    shown = change["object"]
    assert (change["type"], shown["kind"]) == ("ADDED", "PartialObjectMetadata")
    assert "data" not in shown


async def test_watch_ends_at_the_requested_time(api: ContractServer):
    listed = await api.kube.list(CONFIG_MAPS, api.namespace)
    request = watch_request(api, listed.resource_version, {"fieldSelector": "metadata.name=none"})
    async with asyncio.timeout(30):
        assert [line async for line in api.transport.watch(request)] == []


async def test_watch_of_what_is_not_served_is_refused(api: ContractServer):
    path = f"/apis/{api.topics.api_version}/namespaces/{api.namespace}/nothings"
    request = HttpRequest(method="GET", path=path, params={"watch": "1"})
    with pytest.raises(ApiError) as refused:
        await anext(api.transport.watch(request))
    assert refused.value.status == 404
