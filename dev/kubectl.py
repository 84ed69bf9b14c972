"""kubectl as `make demo-kubernetes` and the end-to-end tests use it: run, read JSON, wait for a
condition.

Tests read many times a second and apply hundreds of objects. For both they use the connection of an
`ApiReader`, since a kubectl process costs 0.2 to 0.4 s of processor time.
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
"""Environment variables that limit garbage collection in kubectl and helm. Both end before the
collected memory is worth its cost, a third of their processor time."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Label of a namespace in which Kubernetes enforces the Pod Security Standard "restricted"."""


class CommandFailed(RuntimeError):
    """Raised if a command ended with a non-zero exit code; the message is its output."""


class GaveUp(RuntimeError):
    """Raised if a condition was not met in time; the message says what was last seen."""


def local_environment() -> dict[str, str]:
    """Return the environment variables with which kubectl and helm use the local node."""
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
        """Run a command and return its output. Raises CommandFailed with its output if it fails."""
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
        """Return an object as JSON, or None if it does not exist."""
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
        """Yield each version of an object after resourceVersion `seen`, for at most `timeout_s`
        seconds. If `seen` is empty, begin with the present version."""
        reader = _reader(self.environment.get("KUBECONFIG"))
        return reader.changes(self._path(kind, namespace), name, seen, timeout_s)

    def raw(self, path: str) -> str:
        said = self._read(path)
        if said is None:
            raise CommandFailed(f"{path}: not found")
        return said

    def operator_view(self, path: str, namespace: str = "plimsoll-system") -> Any:
        """Return the JSON at a path of the active operator's view, or None if none of its pods
        answers."""
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
        """Return the body at a path of the view of one operator pod, or None if this pod does not
        lead or does not answer."""
        proxied = f"/api/v1/namespaces/{namespace}/pods/{pod}:9100/proxy{path}"
        try:
            return _reader(self.environment.get("KUBECONFIG")).view(proxied, namespace, READ_S)
        except ReadFailed:
            return None

    def apply(self, body: dict[str, Any], namespace: str = "") -> None:
        """Apply an object as `kubectl apply --server-side` does. Raises an error with the API
        server's message if it refuses."""
        self._reading(lambda reader: reader.apply(body, namespace, READ_S))

    def kubectl_apply(self, namespace: str, *objects: dict[str, Any]) -> None:
        """Apply objects by running kubectl, as a person does who reads its output."""
        for one in objects:
            self.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(one))

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        self._reading(lambda reader: reader.make_namespace(name, labels or {}, READ_S))

    def delete_namespace(self, name: str) -> None:
        """Request the deletion of a namespace, without waiting for its end."""
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
"""The operator pod that answered last, by (kubeconfig, namespace)."""


@cache
def _reader(kubeconfig: str | None) -> ApiReader:
    return ApiReader(kubeconfig)


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, every_s: float = 0.5) -> T:
    """Call `probe` every `every_s` seconds, at first more often, until it returns something other
    than None or False, and return that. A command that fails meanwhile counts as "not yet". Raises
    GaveUp after `timeout_s` seconds. `what`: the condition, for the error."""
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
    """Return the condition of an object with the type `kind`, or None if it has none."""
    conditions = ((thing or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def is_true(thing: dict[str, Any] | None, kind: str) -> bool:
    found = condition(thing, kind)
    return found is not None and found["status"] == "True"
