"""What a person who has only docs/recovery.md and kubectl types is accepted, and waits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.documented_commands import ROOT, fences

from plimsoll_operator.api.labels import USER_ID

PAGE = ROOT / "docs" / "recovery.md"
CLUSTER_PATHS = re.compile(r"kubectl get (logclusters?|topics?)\b[^`]*")
FIELD = re.compile(r"\.(?:status|spec)(?:\.\w+)+")
MET_BEFORE = ("MetadataRestored",)
"""Conditions that an earlier disaster may have left True."""


def documents_of(page: Path) -> list[dict[str, Any]]:
    found = [
        one
        for fence in fences(page)
        if fence.kind == "yaml"
        for one in yaml.safe_load_all(fence.text.replace("…", "x"))
    ]
    return [one for one in found if isinstance(one, dict)]


def test_pods_of_the_page_pass_restricted_pod_security() -> None:
    pods = [one for one in documents_of(PAGE) if one.get("kind") == "Pod"]
    assert pods
    for pod in pods:
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == security["fsGroup"] == USER_ID, "who owns the files"
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert container["image"] == "IMAGE", "the product's own"


def has_field(kind: str, path: str) -> bool:
    """Return True if the CRD of `kind`, in the plural, has the field `path`."""
    crd = yaml.safe_load((ROOT / "crds" / f"plimsoll.dev_{kind}.yaml").read_text())
    at = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.strip(".").split("."):
        at = at.get("properties", {}).get(part)
        if at is None:
            return False
    return True


def test_fields_that_the_page_reads_exist() -> None:
    read = [
        (f"{found[1].removesuffix('s')}s", path)
        for found in CLUSTER_PATHS.finditer(PAGE.read_text())
        for path in FIELD.findall(found[0])
    ]
    assert ("topics", ".status.health.fullISR") in read
    assert not [one for one in read if not has_field(*one)]


@pytest.mark.parametrize("condition", MET_BEFORE)
def test_page_waits_for_no_condition_met_before(condition: str) -> None:
    assert f"--for=condition={condition}" not in PAGE.read_text()
