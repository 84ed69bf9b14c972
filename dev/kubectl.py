"""kubectl as `make demo-kubernetes` and the end-to-end tests use it: run, read JSON, wait for a
condition.

Tests look many times a second and apply hundreds of objects: for both they take an `ApiReader`'s
connection, not a process, which costs 0.2 to 0.4 s of a processor.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from dev.api_reader import ApiReader, ReadFailed

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
NODE = ROOT / "dev" / "node.sh"
READ_S = 20.0
FIRST_PAUSE_S = 0.05
UNCOLLECTED = {"GOGC": "off", "GOMEMLIMIT": "256MiB"}
"""kubectl and helm are over before what they collect of their garbage is worth a third of their
processor time."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""The label of a restricted namespace."""


class CommandFailed(RuntimeError):
    """A command ended non-zero; the message is what it printed."""


class GaveUp(RuntimeError):
    """A condition was not met in time; the message says what was last seen."""


def local_environment() -> dict[str, str]:
    """The environment that points kubectl and helm at the local node."""
    lines = subprocess.run(
        ["bash", "-c", f'eval "$("{NODE}" env)"; echo "$KUBECONFIG"; echo "$PATH"'],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return {**os.environ, "KUBECONFIG": lines[0], "PATH": lines[1]}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kubernetes that kubectl and helm reach through `environment`."""

    environment: dict[str, str]

    def run(self, *command: str, stdin: str | None = None, timeout_s: int = 60) -> str:
        """Run a command; its output, or `CommandFailed` with what it said."""
        done = subprocess.run(
            command,
            env={**UNCOLLECTED, **self.environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(
                f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: int = 60) -> str:
        return self.run("kubectl", *arguments, stdin=stdin, timeout_s=timeout_s)

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """An object, or None when there is none of that name."""
        said = self._read(self._path(kind, namespace) + f"/{name}")
        return json.loads(said) if said else None

    def items(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        said = self._read(self._path(kind, namespace) + query)
        found: list[dict[str, Any]] = json.loads(said)["items"] if said else []
        return found

    def changes(
        self, kind: str, name: str, namespace: str, seen: str, timeout_s: int
    ) -> Iterator[dict[str, Any]]:
        """Each version of an object that follows version `seen` (empty: the one that it has
        first), for so long."""
        reader = _reader(self.environment.get("KUBECONFIG"))
        return reader.changes(self._path(kind, namespace), name, seen, timeout_s)

    def raw(self, path: str) -> str:
        said = self._read(path)
        if said is None:
            raise CommandFailed(f"{path}: not found")
        return said

    def operator_view(self, path: str, namespace: str = "plimsoll-system") -> Any:
        """A path of the active operator's view, as JSON; None: none of its pods answers it."""
        of = (self.environment.get("KUBECONFIG"), namespace)
        # Asked several times a second: the last to answer is asked first, and mostly alone.
        last = _answered.get(of)
        if last is not None and (said := self.view_of(last, path, namespace)) is not None:
            return json.loads(said)
        for pod in self.items("pods", namespace, "app.kubernetes.io/component=operator"):
            name = pod["metadata"]["name"]
            if name != last and (said := self.view_of(name, path, namespace)) is not None:
                _answered[of] = name
                return json.loads(said)
        return None

    def view_of(self, pod: str, path: str, namespace: str) -> str | None:
        """The view of one of the operator's pods; None: it does not lead, or does not answer."""
        proxied = f"/api/v1/namespaces/{namespace}/pods/{pod}:9100/proxy{path}"
        try:
            return _reader(self.environment.get("KUBECONFIG")).view(proxied, namespace, READ_S)
        except ReadFailed:
            return None

    def apply(self, body: dict[str, Any], namespace: str = "") -> None:
        """Apply an object as `kubectl apply --server-side` does; a refusal is the API server's
        sentence."""
        self._reading(lambda reader: reader.apply(body, namespace, READ_S))

    def kubectl_apply(self, namespace: str, *objects: dict[str, Any]) -> None:
        """Apply objects by kubectl, as a person who reads its output does."""
        for one in objects:
            self.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(one))

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        self._reading(lambda reader: reader.make_namespace(name, labels or {}, READ_S))

    def delete_namespace(self, name: str) -> None:
        """Does not wait until it is gone."""
        self._reading(lambda reader: reader.delete_namespace(name, READ_S))

    def _path(self, kind: str, namespace: str) -> str:
        return self._reading(lambda reader: reader.path_of(kind, namespace))

    def _read(self, path: str) -> str | None:
        return self._reading(lambda reader: reader.get(path, READ_S))

    def _reading(self, do: Callable[[ApiReader], T]) -> T:
        try:
            return do(_reader(self.environment.get("KUBECONFIG")))
        except ReadFailed as error:
            raise CommandFailed(str(error)) from error


_answered: dict[tuple[str | None, str], str] = {}
"""The operator's pod that answered last, by kubeconfig and namespace."""


@cache
def _reader(kubeconfig: str | None) -> ApiReader:
    return ApiReader(kubeconfig)


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, every_s: float = 0.5) -> T:
    """Poll until `probe` gives something, every `every_s` seconds, at first more often; a command
    that fails meanwhile counts as "not yet"."""
    deadline = time.monotonic() + timeout_s
    last, pause_s = "", FIRST_PAUSE_S
    while True:
        try:
            if (found := probe()) is not None:
                return found
        except (CommandFailed, subprocess.TimeoutExpired) as error:
            last = str(error)
        if time.monotonic() > deadline:
            raise GaveUp(f"{what}: not within {timeout_s:.0f} s. {last}".strip())
        time.sleep(min(pause_s, every_s))
        pause_s *= 2


def condition(thing: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    """One of an object's conditions, by type."""
    conditions = ((thing or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def is_true(thing: dict[str, Any] | None, kind: str) -> bool:
    found = condition(thing, kind)
    return found is not None and found["status"] == "True"
