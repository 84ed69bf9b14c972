"""What patches and deletions may do.  Part of `contract`."""

import json

import pytest
from tests.plimsoll_operator.kube.contract_server import (
    ELSEWHERE,
    MODIFIED,
    ContractServer,
    changed,
    pod,
    version,
)

from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.kube_api import FIELD_MANAGER
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    PODS,
    SERVICES,
)

# --- patches --------------------------------------------------------------------------------------


async def test_merge_patch_sets_removes_and_leaves_alone(api: ContractServer):
    await api.kube.create(CONFIG_MAPS, changed(api.config_map(), data={"a": "1", "b": "2"}))
    patch = {"data": {"a": None, "c": "3"}}
    patched = await api.kube.merge(CONFIG_MAPS, api.namespace, "one", patch)
    assert patched["data"] == {"b": "2", "c": "3"}


async def test_merge_patch_with_an_earlier_version_is_refused(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    await api.kube.merge(CONFIG_MAPS, api.namespace, "one", {"data": {"a": "2"}})
    stale = {"metadata": {"resourceVersion": version(made)}, "data": {"a": "3"}}
    with pytest.raises(Conflict, match=MODIFIED):
        await api.kube.merge(CONFIG_MAPS, api.namespace, "one", stale)


async def test_repeated_apply_changes_nothing(api: ContractServer):
    first = await api.kube.apply(SERVICES, api.service(1, 2))
    again = await api.kube.apply(SERVICES, api.service(1, 2))
    assert version(first) == version(again)
    assert first["spec"]["ports"][0]["protocol"] == "TCP"


async def test_apply_leaves_what_others_stated(api: ContractServer):
    await api.kube.apply(CONFIG_MAPS, api.config_map())
    mine = {"data": {"b": "2"}, "metadata": {"labels": {"x": "y"}}}
    await api.kube.merge(CONFIG_MAPS, api.namespace, "one", mine)
    again = await api.kube.apply(CONFIG_MAPS, changed(api.config_map(), data={"a": "5"}))
    assert again["data"] == {"a": "5", "b": "2"}
    assert again["metadata"]["labels"] == {"x": "y"}


async def test_apply_takes_back_what_it_no_longer_states(api: ContractServer):
    await api.kube.apply(CONFIG_MAPS, changed(api.config_map(), data={"a": "1", "b": "2"}))
    again = await api.kube.apply(CONFIG_MAPS, changed(api.config_map(), data={"b": "2"}))
    assert again["data"] == {"b": "2"}


async def test_apply_keeps_what_another_manager_states_too(api: ContractServer):
    body = changed(api.config_map(), data={"a": "1", "b": "2"})
    await api.apply_as(ELSEWHERE, CONFIG_MAPS, body)
    await api.kube.apply(CONFIG_MAPS, body)
    left = await api.kube.apply(CONFIG_MAPS, changed(api.config_map(), data={"b": "2"}))
    assert left["data"] == {"a": "1", "b": "2"}


async def test_apply_merges_ports_by_number_and_protocol(api: ContractServer):
    await api.apply_as(ELSEWHERE, SERVICES, api.service(1, 2))
    await api.kube.apply(SERVICES, api.service(2, 3))
    left = await api.kube.apply(SERVICES, api.service(3))
    assert sorted(port["port"] for port in left["spec"]["ports"]) == [1, 2, 3]


async def test_apply_replaces_a_selector_whole(api: ContractServer):
    await api.kube.apply(SERVICES, api.service(1))
    more = {"spec": {"selector": {"tier": "1"}}}
    await api.kube.merge(SERVICES, api.namespace, "main", more)
    again = await api.kube.apply(SERVICES, api.service(1))
    assert again["spec"]["selector"] == {"app": "x"}


async def test_apply_without_force_conflicts_with_other_manager(
    api: ContractServer,
):
    await api.kube.apply(CONFIG_MAPS, api.config_map())
    other = changed(api.config_map(), data={"a": "2"})
    refused = await api.apply_as(ELSEWHERE, CONFIG_MAPS, other)
    assert (refused.status, FIELD_MANAGER in refused.body.decode()) == (409, True)
    forced = await api.apply_as(ELSEWHERE, CONFIG_MAPS, other, force=True)
    assert json.loads(forced.body)["data"] == {"a": "2"}


# --- delete ---------------------------------------------------------------------------------------


async def test_delete_removes_exactly_the_uid_that_is_named(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    with pytest.raises(Conflict, match="UID in the precondition"):
        await api.kube.delete(CONFIG_MAPS, api.namespace, "one", uid="another")
    await api.kube.delete(CONFIG_MAPS, api.namespace, "one", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.kube.get(CONFIG_MAPS, api.namespace, "one")


async def test_delete_of_what_is_not_there_is_404(api: ContractServer):
    with pytest.raises(NotFound):
        await api.kube.delete(CONFIG_MAPS, api.namespace, "none", uid="x")


async def test_delete_keeps_to_the_version_that_is_named(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    await api.kube.merge(CONFIG_MAPS, api.namespace, "one", {"data": {"a": "2"}})
    options = {"preconditions": {"resourceVersion": version(made)}}
    refused = await api.send("DELETE", CONFIG_MAPS.path(api.namespace, "one"), options)
    assert refused.status == 409


async def test_object_with_finalizer_goes_once_it_is_removed(api: ContractServer):
    body = api.config_map(finalizers=["plimsoll.dev/test"])
    made = await api.kube.create(CONFIG_MAPS, body)
    await api.kube.delete(CONFIG_MAPS, api.namespace, "one", uid=made["metadata"]["uid"])
    found = await api.kube.get(CONFIG_MAPS, api.namespace, "one")
    assert found["metadata"]["deletionTimestamp"]
    none = {"metadata": {"finalizers": None}}
    await api.kube.merge(CONFIG_MAPS, api.namespace, "one", none)
    with pytest.raises(NotFound):
        await api.kube.get(CONFIG_MAPS, api.namespace, "one")


async def test_dependents_go_with_their_owner(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": made["metadata"]["uid"],
    }
    await api.kube.create(CONFIG_MAPS, api.config_map("owned", ownerReferences=[reference]))
    await api.kube.create(CONFIG_MAPS, api.config_map("free"))
    await api.kube.delete(CONFIG_MAPS, api.namespace, "owner", uid=made["metadata"]["uid"])
    await api.until_gone(CONFIG_MAPS, "owned")
    assert await api.kube.get(CONFIG_MAPS, api.namespace, "free")


async def test_pod_that_no_kubelet_has_goes_without_grace(api: ContractServer):
    made = await api.kube.create(PODS, pod(api))
    await api.kube.delete(PODS, api.namespace, "far", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.kube.get(PODS, api.namespace, "far")


async def test_kubelets_pod_stays_until_forced_deletion(api: ContractServer):
    body = pod(api)
    body["spec"]["nodeName"] = "no-such-node"
    made = await api.kube.create(PODS, body)
    uid = made["metadata"]["uid"]
    await api.kube.delete(PODS, api.namespace, "far", uid=uid)
    going = await api.kube.get(PODS, api.namespace, "far")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.kube.delete(PODS, api.namespace, "far", uid=uid, grace_seconds=0)
    with pytest.raises(NotFound):
        await api.kube.get(PODS, api.namespace, "far")
