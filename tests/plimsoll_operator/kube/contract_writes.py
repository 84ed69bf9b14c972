"""What a create, an update and a status may do.  Part of `contract`."""

import json

import pytest
from tests.plimsoll_operator.kube.contract_server import (
    APPLY,
    ELSEWHERE,
    MODIFIED,
    ContractServer,
    changed,
    condition,
    lease,
    version,
)

from plimsoll_operator.api_server.status_errors import qualified
from plimsoll_operator.kube.errors import Conflict, NotFound, Rejected, Unavailable
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    LEASES,
    STATEFUL_SETS,
)

# --- create, get ----------------------------------------------------------------------------------


async def test_new_object_gets_uid_version_and_time(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    meta = made["metadata"]
    assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
    assert await api.kube.get(CONFIG_MAPS, api.namespace, "one") == made


async def test_second_object_of_same_name_is_refused(api: ContractServer):
    await api.kube.create(CONFIG_MAPS, api.config_map())
    with pytest.raises(Conflict, match='configmaps "one" already exists'):
        await api.kube.create(CONFIG_MAPS, api.config_map())


async def test_api_server_tells_of_absent_objects_with_404(api: ContractServer):
    with pytest.raises(NotFound, match=f'{qualified(api.topics)} "none" not found'):
        await api.kube.get(api.topics, api.namespace, "none")


async def test_creation_in_missing_namespace_is_refused(api: ContractServer):
    body = api.config_map(namespace="nowhere-at-all")
    with pytest.raises(NotFound, match='namespaces "nowhere-at-all" not found'):
        await api.kube.create(CONFIG_MAPS, body)


async def test_api_server_completes_a_generated_name(api: ContractServer):
    body = api.config_map()
    body["metadata"] = {"generateName": "plan-", "namespace": api.namespace}
    path = CONFIG_MAPS.path(api.namespace)
    names = []
    for _ in range(2):
        made = await api.send("POST", path, body)
        assert made.status == 201
        names.append(json.loads(made.body)["metadata"]["name"])
    assert names[0] != names[1]
    assert all(name.startswith("plan-") and len(name) == 10 for name in names)


async def test_creation_with_invalid_dns_name_is_refused(api: ContractServer):
    with pytest.raises(Rejected, match=r"metadata\.name: Invalid value") as refused:
        await api.kube.create(CONFIG_MAPS, api.config_map("Not_A_Name"))
    assert refused.value.status == 422


async def test_api_server_refuses_labels_that_are_none(api: ContractServer):
    with pytest.raises(Rejected, match=r"metadata\.labels: Invalid value") as refused:
        await api.kube.create(CONFIG_MAPS, api.config_map(labels={"a": "b c"}))
    assert refused.value.status == 422


async def test_api_server_states_time_in_whole_seconds(api: ContractServer):
    listed = await api.kube.list(CONFIG_MAPS, api.namespace)
    assert listed.server_ms is not None
    assert listed.server_ms % 1_000 == 0
    kube = KubeApi(api.kube._transport)
    assert kube.answered_ms is None
    listed = await kube.list(CONFIG_MAPS, api.namespace)
    assert kube.answered_ms == listed.server_ms


# --- compare and set ------------------------------------------------------------------------------


async def test_update_is_stored_under_the_read_version(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    stored = await api.kube.replace(CONFIG_MAPS, changed(made, data={"a": "2"}))
    assert (stored["data"], stored["metadata"]["uid"]) == ({"a": "2"}, made["metadata"]["uid"])
    assert version(stored) != version(made)


async def test_update_of_earlier_version_is_refused(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    await api.kube.replace(CONFIG_MAPS, changed(made, data={"a": "2"}))
    with pytest.raises(Conflict, match=MODIFIED):
        await api.kube.replace(CONFIG_MAPS, changed(made, data={"a": "3"}))
    found = await api.kube.get(CONFIG_MAPS, api.namespace, "one")
    assert found["data"] == {"a": "2"}


async def test_api_server_refuses_an_update_of_another_uid(api: ContractServer):
    made = await api.kube.create(LEASES, lease(api))
    other = {**made["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}
    with pytest.raises(Conflict, match="UID in precondition"):
        await api.kube.replace(LEASES, changed(made, metadata=other))


async def test_api_server_updates_nothing_that_is_gone(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic())
    await api.kube.delete(api.topics, api.namespace, "orders", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.kube.replace(api.topics, made)


async def test_deleted_lease_is_not_recreated_by_update(api: ContractServer):
    made = await api.kube.create(LEASES, lease(api))
    await api.kube.delete(LEASES, api.namespace, "main", uid=made["metadata"]["uid"])
    with pytest.raises(Conflict):
        await api.kube.replace(LEASES, made)
    bare = {k: v for k, v in made["metadata"].items() if k != "uid"}
    assert await api.kube.replace(LEASES, changed(made, metadata=bare))


@pytest.mark.parametrize("of", ["Topic", "Lease"])
async def test_update_requires_a_version(api: ContractServer, of: str):
    kind, body = (api.topics, api.topic("x")) if of == "Topic" else (LEASES, lease(api))
    made = await api.kube.create(kind, body)
    bare = {k: v for k, v in made["metadata"].items() if k != "resourceVersion"}
    with pytest.raises(Rejected, match="must be specified for an update"):
        await api.kube.replace(kind, changed(made, metadata=bare))


async def test_config_map_update_needs_no_version(api: ContractServer):
    await api.kube.create(CONFIG_MAPS, api.config_map())
    stored = await api.kube.replace(CONFIG_MAPS, changed(api.config_map(), data={"a": "2"}))
    assert stored["data"] == {"a": "2"}


async def test_update_that_changes_nothing_keeps_the_version(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    assert version(await api.kube.replace(CONFIG_MAPS, made)) == version(made)


async def test_dry_run_answers_and_stores_nothing(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, api.config_map())
    tried = await api.kube.replace(CONFIG_MAPS, changed(made, data={"a": "2"}), dry_run=True)
    assert tried["data"] == {"a": "2"}
    assert await api.kube.get(CONFIG_MAPS, api.namespace, "one") == made


async def test_dry_run_shows_stateful_set_defaults(api: ContractServer):
    made = await api.kube.create(STATEFUL_SETS, api.stateful_set())
    bare = api.stateful_set()["spec"]
    tried = await _replaced_as_found(api, made, bare)
    assert tried["spec"] == made["spec"] != bare


async def _replaced_as_found(api: ContractServer, made: Object, spec: Object) -> Object:
    """What a PUT would store.  A controller at work writes the status meanwhile: then it is read
    and tried again, as whoever compares and sets does."""
    found = made
    while True:
        try:
            return await api.kube.replace(STATEFUL_SETS, changed(found, spec=spec), dry_run=True)
        except Conflict:
            name = made["metadata"]["name"]
            found = await api.kube.get(STATEFUL_SETS, api.namespace, name)


async def test_immutable_config_map_stays_as_it_is(api: ContractServer):
    made = await api.kube.create(CONFIG_MAPS, {**api.config_map(), "immutable": True})
    with pytest.raises(Rejected, match="immutable") as refused:
        await api.kube.replace(CONFIG_MAPS, changed(made, data={"a": "2"}))
    assert refused.value.status == 422


async def test_stateful_set_keeps_its_original_selector(api: ContractServer):
    made = await api.kube.create(STATEFUL_SETS, api.stateful_set())
    # A patch: a controller at work writes the status meanwhile, and a PUT would be a 409.
    other, name = {"spec": {"serviceName": "other"}}, made["metadata"]["name"]
    with pytest.raises(Rejected, match="updates to statefulset spec for fields other than"):
        await api.kube.merge(STATEFUL_SETS, api.namespace, name, other)


# --- generation and status ------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["Topic", "StatefulSet"])
async def test_generation_grows_with_the_spec_alone(api: ContractServer, of: str):
    kind = api.topics if of == "Topic" else STATEFUL_SETS
    body = api.topic("x", partitions=3) if of == "Topic" else api.stateful_set("x")
    made = await api.kube.create(kind, body)
    labels = {"metadata": {"labels": {"a": "b"}}}
    labelled = await api.kube.merge(kind, api.namespace, "x", labels)
    field_ = {"partitions": 4} if of == "Topic" else {"minReadySeconds": 4}
    edited = await api.kube.merge(kind, api.namespace, "x", {"spec": field_})
    generations = [one["metadata"]["generation"] for one in (made, labelled, edited)]
    assert generations == [1, 1, 2]


async def test_status_is_written_through_its_own_path_alone(api: ContractServer):
    await api.kube.create(api.topics, {**api.topic(), "status": {"partitions": 9}})
    found = await api.kube.get(api.topics, api.namespace, "orders")
    assert "status" not in found
    shown = await api.kube.apply_status(api.topics, api.namespace, "orders", {"partitions": 3})
    assert (shown["status"], shown["spec"]) == ({"partitions": 3}, found["spec"])
    assert shown["metadata"]["generation"] == found["metadata"]["generation"]
    edited = await api.kube.replace(api.topics, changed(shown, status={"partitions": 7}))
    assert edited["status"] == {"partitions": 3}


async def test_applied_status_loses_what_is_no_longer_stated(api: ContractServer):
    await api.kube.create(api.topics, api.topic())
    first = {"partitions": 3, "conditions": [condition("Ready"), condition("Blocked")]}
    await api.kube.apply_status(api.topics, api.namespace, "orders", first)
    second = {"conditions": [condition("Ready")]}
    shown = await api.kube.apply_status(api.topics, api.namespace, "orders", second)
    assert shown["status"] == second


async def test_status_applied_again_changes_nothing(api: ContractServer):
    await api.kube.create(api.topics, api.topic())
    status = {"conditions": [condition("Ready")]}
    one = await api.kube.apply_status(api.topics, api.namespace, "orders", status)
    two = await api.kube.apply_status(api.topics, api.namespace, "orders", status)
    assert version(one) == version(two)


async def test_status_with_stale_version_is_refused(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic())
    place = (api.topics, api.namespace, "orders")
    one = await api.kube.apply_status(*place, {"partitions": 3}, version=version(made))
    with pytest.raises(Conflict, match=MODIFIED):
        await api.kube.apply_status(*place, {"partitions": 4}, version=version(made))
    two = await api.kube.apply_status(*place, {"partitions": 5}, version=version(one))
    assert two["status"] == {"partitions": 5}


async def test_merged_status_outlasts_what_is_applied(api: ContractServer):
    """On which the record of a drill rests."""
    place = (api.topics, api.namespace, "orders")
    made = await api.kube.create(api.topics, api.topic())
    one = await api.kube.merge_status(*place, {"partitions": 3}, version=version(made))
    with pytest.raises(Conflict, match=MODIFIED):
        await api.kube.merge_status(*place, {"partitions": 4}, version=version(made))
    ready, done = ({"conditions": [condition(name)]} for name in ("Ready", "Blocked"))
    await api.kube.apply_status(*place, ready, version=version(one))
    two = await api.kube.apply_status(*place, done)
    assert two["status"] == {"partitions": 3, **done}


async def test_status_for_predecessor_of_object_is_refused(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic())
    place = (api.topics, api.namespace, "orders")
    await api.kube.delete(*place, uid=made["metadata"]["uid"])
    await api.kube.create(api.topics, api.topic())
    with pytest.raises(Conflict, match=MODIFIED):
        await api.kube.apply_status(*place, {"partitions": 4}, version=version(made))


async def test_uid_in_status_patch_is_ignored(api: ContractServer):
    """Why a status is written for a resourceVersion."""
    await api.kube.create(api.topics, api.topic())
    body = {**api.topic(), "status": {"partitions": 3}}
    body["metadata"] = {**body["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}
    path = api.topics.path(api.namespace, "orders") + "/status"
    params = {"fieldManager": ELSEWHERE, "force": "true"}
    answer = await api.send("PATCH", path, body, content_type=APPLY, params=params)
    assert answer.status == 200


async def test_status_of_an_absent_object_is_refused(api: ContractServer):
    with pytest.raises(NotFound):
        await api.kube.apply_status(api.topics, api.namespace, "none", {"partitions": 3})


@pytest.mark.parametrize(
    "status",
    [{"partitions": -1}, {"partitions": None}, {"conditions": [{"type": "Ready"}]}],
    ids=["minimum", "null", "required"],
)
async def test_status_against_the_schema_is_refused(api: ContractServer, status: Object):
    await api.kube.create(api.topics, api.topic())
    with pytest.raises(Rejected, match=rf"status\.{next(iter(status))}") as refused:
        await api.kube.apply_status(api.topics, api.namespace, "orders", status)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"partitions": "many"}, r"\.status\.partitions: expected numeric"),
        ({"unheardOf": 1}, r"\.status\.unheardOf: field not declared in schema"),
        ({"conditions": [{"type": "A"}, {"type": "A"}]}, r"\.status\.conditions: duplicate"),
    ],
    ids=["type", "unknown", "duplicate"],
)
async def test_applied_status_of_other_shape_is_server_error(
    api: ContractServer, status: Object, sentence: str
):
    """Not final by its code: whoever applies has to be right about the schema."""
    await api.kube.create(api.topics, api.topic())
    with pytest.raises(Unavailable, match=sentence) as failed:
        await api.kube.apply_status(api.topics, api.namespace, "orders", status)
    assert failed.value.status == 500


async def test_status_that_was_applied_is_never_applied_empty(api: ContractServer):
    await api.kube.create(api.topics, api.topic())
    await api.kube.apply_status(api.topics, api.namespace, "orders", {"partitions": 3})
    with pytest.raises(Rejected, match='status: Invalid value: "null"'):
        await api.kube.apply_status(api.topics, api.namespace, "orders", {})


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"partitions": 0}, r"spec\.partitions.* should be greater than or equal to 1"),
        ({"partitions": "3"}, r"spec\.partitions.* must be of type integer"),
        ({"clusterRef": {}}, r"spec\.clusterRef\.name: Required value"),
        ({"deletionPolicy": "Keep"}, r"spec\.deletionPolicy: Unsupported value"),
        ({"topicName": "a b"}, r"spec\.topicName.* should match"),
    ],
    ids=["minimum", "type", "required", "enum", "pattern"],
)
async def test_custom_resource_is_held_to_its_schema(
    api: ContractServer, spec: Object, sentence: str
):
    with pytest.raises(Rejected, match=sentence) as refused:
        await api.kube.create(api.topics, api.topic(**spec))
    assert refused.value.status == 422


async def test_custom_resource_loses_unknown_fields(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic(unheardOf={"a": 1}))
    assert "unheardOf" not in made["spec"]


async def test_custom_resource_loses_a_null(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic(partitions=None))
    assert "partitions" not in made["spec"]


async def test_custom_resource_says_what_it_is(api: ContractServer):
    body = {k: v for k, v in api.topic().items() if k != "kind"}
    with pytest.raises(Rejected) as refused:
        await api.kube.create(api.topics, body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "value", ["", "7d", 1, -1, 2**63 - 1, 0.5, True, False], ids=lambda value: repr(value)
)
async def test_config_takes_a_scalar_as_it_is_written(api: ContractServer, value: object):
    made = await api.kube.create(api.topics, api.topic(config={"some.key": value}))
    found = made["spec"]["config"]["some.key"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "value", [{}, {"a": 1}, [], [1], ["delete", "compact"], [{}]], ids=lambda value: repr(value)
)
async def test_config_takes_nothing_nested(api: ContractServer, value: object):
    with pytest.raises(Rejected, match=r"spec\.config.*some\.key") as refused:
        await api.kube.create(api.topics, api.topic(config={"some.key": value}))
    assert refused.value.status == 422


async def test_config_loses_a_null(api: ContractServer):
    made = await api.kube.create(api.topics, api.topic(config={"some.key": None, "other": "1"}))
    assert made["spec"]["config"] == {"other": "1"}
