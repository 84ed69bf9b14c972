"""The bundle for a bug report: complete, and without secrets."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll_operator.history.segments import Budget
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.kubectl_plugin import report_bundle, timeline
from plimsoll_operator.kubectl_plugin.shown import Problem, ViewUnavailable

CANARY = "cAnArY-7f3d"
CLUSTER = {
    "metadata": {
        "name": "main",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": CANARY,
            "note": "kept",
        },
    },
    "spec": {
        "config": {"ssl.keystore.password": CANARY, "log.retention.ms": "1000"},
        "listeners": [{"credentialsSecret": CANARY, "port": 9092}],
    },
}
POD = {
    "metadata": {"name": "main-broker-0-0"},
    "spec": {
        "imagePullSecrets": [{"name": "mirror"}],
        "automountServiceAccountToken": False,
        "ephemeralContainers": [{"name": "debugger", "command": [CANARY]}],
        "containers": [{"name": "b", "env": [{"name": "X", "value": CANARY}], "args": [CANARY]}],
    },
}
STATEFUL = {
    "metadata": {"name": "main-broker-0"},
    "spec": {"env": [{"name": "API_TOKEN", "value": CANARY}, {"name": "MODE", "value": "fast"}]},
}


class Found:
    """What a session finds."""

    def __init__(self, *, operator: bool = True) -> None:
        self.operator = operator
        self.bodies = {"logclusters": [CLUSTER], "pods": [POD], "statefulsets": [STATEFUL]}
        self.status: dict[str, Any] = {"versions": {"operator": "0.2"}}
        self.transport = self

    async def send(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200, body=b'{"gitVersion": "v1.34.0"}')

    async def see(self, path: str = "") -> Any:
        if not self.operator:
            raise ViewUnavailable("No operator that leads the cluster answers.")
        return {"path": path, "password": CANARY}

    async def objects(self, kind: Kind) -> list[Any]:
        if kind.plural == "events":
            raise Problem("events of kafka: forbidden.")
        return self.bodies.get(kind.plural, [])


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object) -> timeline.Archived:
        return timeline.Archived(rows=[], notes=[])

    monkeypatch.setattr(timeline, "read", read)


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            one.name: (archive.extractfile(one) or SimpleNamespace(read=bytes)).read().decode()
            for one in archive.getmembers()
        }


async def test_bundle_holds_views_and_objects_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    found = await report_bundle.bundle(Found(), path)  # type: ignore[arg-type]
    files = contents(path)
    assert CANARY not in "".join(files.values())
    assert "log.retention.ms: '1000'" in files["r/objects/logclusters.yaml"]
    assert "note: kept" in files["r/objects/logclusters.yaml"]
    assert "managedFields" not in files["r/objects/logclusters.yaml"]
    assert "name: mirror" in files["r/objects/pods.yaml"]
    assert "value: fast" in files["r/objects/statefulsets.yaml"]
    assert "v1.34.0" in files["r/versions.json"]
    assert files["r/missing.txt"] == "events of kafka: forbidden.\n"
    assert found.data["missing"] == ["events of kafka: forbidden."]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_bundle_without_operator_states_what_is_missing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.tar.gz"
    await report_bundle.bundle(Found(operator=False), path)  # type: ignore[arg-type]
    files = contents(path)
    assert "r/view-cluster.json" not in files
    assert "view-brokers.json: No operator that leads" in files["r/missing.txt"]
    assert "r/objects/logclusters.yaml" in files


async def test_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    path.write_text("mine")
    with pytest.raises(Problem, match="Cannot write"):
        await report_bundle.bundle(Found(), path)  # type: ignore[arg-type]
    assert path.read_text() == "mine"


def test_history_budget_matches_the_documentation() -> None:
    assert Budget() == Budget(days=30, bytes_max=4 * 1024 * 1024)


async def test_bundle_is_private_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes = tmp_path / "r.tar.gz", set[int]()
    add = tarfile.TarFile.addfile

    def watched(*args: Any) -> None:
        modes.add(path.stat().st_mode & 0o777)
        add(*args)

    monkeypatch.setattr(tarfile.TarFile, "addfile", watched)
    await report_bundle.bundle(Found(), path)  # type: ignore[arg-type]
    assert modes == {0o600}
