"""The CRDs under `crds/` are what the models say, and the API server can price their rules."""

import re
from pathlib import Path

import pytest

from plimsoll_operator.api.crds import (
    KINDS,
    LOG_CLUSTER,
    TOPIC,
    Kind,
    crd,
    file_name,
    render,
    spec_schema,
    status_schema,
)
from plimsoll_operator.api.schema import structural, unbounded
from plimsoll_operator.api_server import tables

CRDS = Path(__file__).parents[2] / "crds"
BY_NAME = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@BY_NAME
def test_checked_in_crd_is_what_the_models_say(kind: Kind):
    hint = "run: python -m plimsoll_operator.api.crds crds"
    assert (CRDS / file_name(kind)).read_text() == render(kind), hint


@BY_NAME
def test_schema_bounds_every_list_map_and_string(kind: Kind):
    assert list(unbounded(spec_schema(kind))) == []
    assert list(unbounded(structural(kind.status))) == []


@BY_NAME
def test_rules_are_explained_in_sentences(kind: Kind):
    for _, message in kind.rules:
        assert message.endswith(".")


@BY_NAME
def test_schema_has_no_defaults(kind: Kind):
    assert "default:" not in render(kind)


@BY_NAME
def test_schema_states_inclusive_bounds_alone(kind: Kind):
    """An API server takes `exclusiveMaximum` as a boolean, and msgspec writes a number."""
    assert "exclusiveM" not in render(kind)


def list_keys_that_may_lack(schema: dict) -> list[str]:
    """Keys of list maps that their items need not have: an API server refuses such a CRD."""
    items = schema.get("items", {})
    found = [
        key
        for key in schema.get("x-kubernetes-list-map-keys", ())
        if key not in items.get("required", ())
    ]
    parts = [*schema.get("properties", {}).values(), *([items] if items else [])]
    return found + [key for part in parts for key in list_keys_that_may_lack(part)]


@BY_NAME
def test_items_of_list_map_require_its_keys(kind: Kind):
    assert list_keys_that_may_lack(spec_schema(kind)) == []
    assert list_keys_that_may_lack(status_schema(kind)) == []


@BY_NAME
def test_kind_is_found_under_the_category(kind: Kind):
    assert crd(kind)["spec"]["names"]["categories"] == ["plimsoll"]


def requirements(schema: dict) -> list:
    """Every `required` in a schema."""
    found = list(schema.get("required", ()))
    parts = [*schema.get("properties", {}).values()]
    if "items" in schema:
        parts.append(schema["items"])
    for part in parts:
        found += requirements(part)
    return found


@BY_NAME
def test_older_operator_can_write_under_newer_crd(kind: Kind):
    schema = status_schema(kind)
    conditions = schema["properties"].pop("conditions")
    assert requirements(schema) == []
    assert "type" in conditions["items"]["required"]


@pytest.mark.parametrize("value", ["100m", "2", "1.5", ".5", "512Mi", "1e3", "12E", "3k", "5n"])
def test_quantity_of_kubernetes_is_taken(value: str):
    assert re.match(cpu_schema()["pattern"], value)


@pytest.mark.parametrize("value", ["lots", "", "1 Gi", "1GiB", "Mi", "1K", "--1"])
def test_crd_schema_rejects_invalid_cpu_quantity(value: str):
    """Else the pods' StatefulSet is refused, and a restart that was granted comes to nothing."""
    assert not re.match(cpu_schema()["pattern"], value)


def cpu_schema() -> dict:
    brokers = spec_schema(LOG_CLUSTER)["properties"]["brokers"]["properties"]
    return brokers["resources"]["properties"]["requests"]["additionalProperties"]


def test_logcluster_shows_and_scales_by_running_brokers():
    """As a Deployment's `status.replicas`: all that there are, not only as many as are desired."""
    version = crd(LOG_CLUSTER)["spec"]["versions"][0]
    paths = {c["name"]: c["jsonPath"] for c in version["additionalPrinterColumns"]}
    assert paths["Brokers"] == ".status.brokers['active','ready']"
    assert paths["Desired"] == ".status.brokers.desired"
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.brokers.count",
        "statusReplicasPath": ".status.brokers.active",
        "labelSelectorPath": ".status.selector",
    }


@pytest.mark.parametrize(
    ("brokers", "cell"), [({"ready": 2, "active": 3}, 3), ({"ready": 2}, 2), ({}, None)]
)
def test_brokers_column_falls_back_to_ready(brokers: dict[str, int], cell: int | None):
    columns = crd(LOG_CLUSTER)["spec"]["versions"][0]["additionalPrinterColumns"]
    (path,) = (column["jsonPath"] for column in columns if column["name"] == "Brokers")
    assert tables.at({"status": {"brokers": brokers}}, path) == cell


@BY_NAME
def test_columns_of_times_name_their_unit(kind: Kind):
    columns = crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    units = {"Milliseconds": "(ms)", "Seconds": "(s)"}
    for column in columns:
        for ending, unit in units.items():
            if column["jsonPath"].endswith(ending):
                assert column["name"].endswith(unit), column


def test_long_topic_names_widen_nobodys_lines():
    columns = crd(TOPIC)["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if c.get("priority")] == ["Topic"]
