"""The files of examples/mirror agree with each other; `tests/conformance/test_switch_over.py` runs
them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_operator.api.load import from_yaml

FILES = Path(__file__).parent.parent.parent / "examples" / "mirror"
SITES = ("east", "west")
WAYS = ("east-to-west", "west-to-east", "both-ways")
APPLIED = {
    "east-to-west": ("east-to-west", "west"),
    "west-to-east": ("west-to-east", "east"),
    "both-ways-in-east": ("both-ways", "east"),
    "both-ways-in-west": ("both-ways", "west"),
}
"""What `kubectl apply -k` is given: the folder with its properties, and the cluster beside it."""
SIDE = re.compile("[Ee]ast|[Ww]est")
OTHER = {"east": "west", "west": "east", "East": "West", "West": "East"}
REFERENCE = re.compile(r"\$\{file:([^:]+)/java\.properties:([\w.]+)\}")


def properties(way: str) -> dict[str, str]:
    lines = (FILES / way / "mirror.properties").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def mirrored(path: str) -> str:
    """The text of a file with east and west exchanged."""
    return SIDE.sub(lambda found: OTHER[found[0]], (FILES / path).read_text())


def deployment() -> Any:
    text = (FILES / "deployment/deployment.yaml").read_text()
    return yaml.safe_load(text)["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "name", ["mirror.properties", "kustomization.yaml", "user-east.yaml", "user-west.yaml"]
)
def test_way_back_is_the_way_there_exchanged(name: str) -> None:
    other = SIDE.sub(lambda found: OTHER[found[0]], name)
    assert (FILES / "west-to-east" / name).read_text() == mirrored(f"east-to-west/{other}")


def test_both_ways_are_alike() -> None:
    for way, name in (("both-ways", "user"), (".", "orders")):
        text = (FILES / way / f"{name}-west.yaml").read_text()
        assert text == mirrored(f"{way}/{name}-east.yaml")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("site", SITES)
def test_users_name_mirrored_topics_and_groups(way: str, site: str) -> None:
    (user,) = from_yaml((FILES / way / f"user-{site}.yaml").read_text())
    assert (user.metadata.name, user.spec.cluster_ref.name) == (f"mirror-{site}", site)
    named = {(acl.resource.type, acl.resource.name) for acl in user.spec.acls}
    said = properties(way)
    assert {("Topic", said["topics"]), ("Group", said["groups"])} <= named


@pytest.mark.parametrize("way", WAYS)
def test_logins_are_mounted_where_properties_look(way: str) -> None:
    (container,) = deployment()["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    secrets = {
        one["name"]: one["secret"]["secretName"]
        for one in deployment()["volumes"]
        if "secret" in one
    }
    referred = set()
    for name, value in properties(way).items():
        if found := REFERENCE.fullmatch(value):
            site, _, key = name.partition(".")
            assert key == found[2]
            assert secrets[mounts[f"{container['workingDir']}/{found[1]}"]] == (
                f"mirror-{site}-kafka"
            )
            referred.add(site)
    assert referred == set(SITES)


@pytest.mark.parametrize("applied", APPLIED)
def test_each_kustomization_writes_to_its_target(applied: str) -> None:
    way, target = APPLIED[applied]
    found = yaml.safe_load((FILES / applied / "kustomization.yaml").read_text())
    (config,) = found["configMapGenerator"]
    assert config["literals"] == [f"target={target}"]
    if applied != way:
        assert found["resources"] == [f"../{way}"]
        found = yaml.safe_load((FILES / way / "kustomization.yaml").read_text())
        (config,) = found["configMapGenerator"]
    assert found["resources"] == ["../deployment"]
    assert config["files"] == ["mirror.properties"]
    assert properties(way)[f"{OTHER[target]}->{target}.enabled"] == "true"
    (container,) = deployment()["containers"]
    assert container["env"][0]["valueFrom"]["configMapKeyRef"] == {
        "name": "mirror",
        "key": "target",
    }
