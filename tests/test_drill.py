"""Which process `kill_operator` kills, where other tests kill operators, too."""

import signal
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest
from dev.kubectl import Cluster
from tests.e2e import drill as drills
from tests.e2e.drill import Drill, killed_operator


class Played:
    """A Lease that names a pod, and what the view of that pod says."""

    def __init__(self, holder: str, view: str | None) -> None:
        self._holder, self._view = holder, view

    def items(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        return [{"spec": {"holderIdentity": self._holder}}]

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": "1"}}

    def view_of(self, pod: str, path: str, namespace: str) -> str | None:
        assert (pod, path) == (self._holder, "/v1/clusters/shop/main")
        return self._view


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The process that is found in the pod."""
    monkeypatch.delenv("USE_CURRENT_CONTEXT", raising=False)
    with subprocess.Popen(["sleep", "100"]) as found:
        monkeypatch.setattr(drills, "running", lambda pod, module: found.pid)
        yield found
        found.kill()


def killed(holder: str, view: str | None) -> bool:
    return killed_operator(Drill(cast("Cluster", Played(holder, view)), "shop"))


@pytest.mark.parametrize(("holder", "view"), [("a", None), ("", "{}")])
def test_operator_not_leading_is_not_killed(
    operator: subprocess.Popen[bytes], holder: str, view: str | None
) -> None:
    assert not killed(holder, view)
    assert operator.poll() is None


def test_leading_operator_is_killed_once(
    operator: subprocess.Popen[bytes],
) -> None:
    assert killed("a", "{}")
    assert operator.wait(10) == -signal.SIGKILL
    assert not killed("a", "{}")


class Answering:
    """A view that nobody answers at first."""

    def __init__(self) -> None:
        self.asked = 0

    def operator_view(self, path: str, namespace: str) -> Any:
        self.asked += 1
        return {"partitions": [{"replicas": [0, 1]}]} if self.asked > 2 else None


def test_hosts_are_counted_once_an_operator_leads() -> None:
    found = Drill(cast("Cluster", Answering()), "shop").hosts()
    assert found == {0: 3, 1: 3}, "of two topics, and of the groups' offsets"
