"""Publishes progress and verdict: to one ConfigMap through the API server, or to a directory.

Called by `run`. It patches the ConfigMap with the pod's own service account, using only the
standard library. A refusal of the API server is final; a missing answer is retried while time
lasts. The ConfigMap holds the number of the driver that writes it. A driver takes the next number
at its first patch, unless a later driver works on its run by then. Each patch is for the version of
the ConfigMap that it has seen, so one of which the node was lost cannot write over its successor.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from plimsoll_spark.attempts import Superseded
from plimsoll_spark.bucket import Unreachable
from plimsoll_spark.settings import Report
from plimsoll_spark.whole_files import put_whole

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ATTEMPT_TIMEOUT_S = 5.0
BACKOFF_S = 0.5
BACKOFF_MAX_S = 5.0
COMPACTED = "compacted"
"""The key of the operator's note that the run's topic is compacted (`yes`), or was (`before`)."""
DRIVER = "driver"
"""The key in the ConfigMap with the number of the driver that writes it."""
FINAL_STATUSES = frozenset({400, 401, 403, 404, 413, 422})

log = logging.getLogger(__name__)


class PublishFailed(RuntimeError):
    """Raised if the texts could not be stored: the destination refused them, or did not answer in
    time."""


class Publisher(Protocol):
    """Stores the texts that a verification shows to the operator or the user, each under a name."""

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Store all texts, replacing those of the same names. Raises `PublishFailed` if that is
        refused, or has not succeeded after `within_s` seconds; `Superseded` if another driver
        writes there now."""

    def get(self, name: str) -> str | None:
        """Return the text of this name at the destination, which another program may have stored;
        None if there is none, or it cannot be read now."""


class DirectoryPublisher:
    """Publishes each text as a file in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Write each text to the file of its name, replacing the file in one step, so that a reader
        sees no partial file. Raises OSError; `within_s` has no effect."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            put_whole(self._directory / name, text.encode())

    def get(self, name: str) -> str | None:
        path = self._directory / name
        return path.read_text() if path.exists() else None


class ConfigMapPublisher:
    """Publishes each text under a key of an existing ConfigMap."""

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        server: str,
        account: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a publisher. `server`: the URL of the API server. `account`: the folder with the
        token and the CA certificate for it; None: the API server requires no token. `check`: raises
        `Superseded` if a later driver works on the run, OSError or `Unreachable` if that cannot be
        known now."""
        self._check = check
        self._url = f"{server}/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._account = account
        self._number: int | None = None  # of this driver; None: not taken yet
        self._uid = ""
        self._version = ""  # resourceVersion of the ConfigMap; "": unknown

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Patch the ConfigMap. An attempt without an answer is repeated, since the patch is
        idempotent. Raises `PublishFailed`, `Superseded`."""
        until_s, wait_s = time.monotonic() + within_s, BACKOFF_S
        while True:
            problem = self._attempt(texts)
            if problem is None:
                return
            if time.monotonic() + wait_s >= until_s:
                raise PublishFailed(
                    "the driver pod could not write to the ConfigMap of the Verification's "
                    f"report: {problem}"
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)

    def get(self, name: str) -> str | None:
        try:
            found = (self._request("GET").get("data") or {}).get(name)
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.warning(
                "the driver pod cannot read %s in the ConfigMap of the Verification's report "
                "(%s); the Verification goes on without it, and nothing needs to be done: %s",
                *(name, self._url, error),
            )
            return None
        return None if found is None else str(found)

    def _access(self) -> tuple[dict[str, str], ssl.SSLContext | None]:
        """Return the headers and the TLS context of a request, None for plain HTTP. Raises
        OSError."""
        headers: dict[str, str] = {}
        trust = None
        if self._account is not None:
            # Read again each time: the kubelet replaces it during the run.
            token = (self._account / "token").read_text().strip()
            headers["Authorization"] = f"Bearer {token}"
            if self._url.startswith("https:"):
                trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        return headers, trust

    def _request(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        headers, trust = self._access()
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(self._url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=ATTEMPT_TIMEOUT_S, context=trust) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _attempt(self, texts: Mapping[str, str]) -> str | None:
        """Patch the ConfigMap once, after reading it if its version is unknown. Return None if that
        is done, else why it is not. Raises `PublishFailed`, `Superseded`."""
        try:
            number = self._number or 0
            if not self._version:
                number = self._looked_at(self._request("GET"))
                if self._number is None:
                    # After the look: a later driver that begins from now on patches after it, and
                    # then this patch is for an old version.
                    self._check()
            body = {
                "metadata": {"uid": self._uid, "resourceVersion": self._version},
                "data": {**texts, DRIVER: str(number)},
            }
            stored = self._request("PATCH", json.dumps(body).encode())
            self._number, self._version = number, _version(stored)
            return None
        except urllib.error.HTTPError as error:
            self._version = ""
            with error:
                sentence = f"{error.code} {error.read(500).decode(errors='replace')}"
            if error.code in FINAL_STATUSES:
                raise PublishFailed(
                    f"the API server refused to store the Verification's report: {sentence}"
                ) from error
            return sentence
        except (OSError, Unreachable, http.client.HTTPException, ValueError) as error:
            self._version = ""
            return str(error)

    def _looked_at(self, found: dict[str, Any]) -> int:
        """Remember the version of the ConfigMap, and return this driver's number in it. Raises
        `Superseded`."""
        uid = str((found.get("metadata") or {}).get("uid", ""))
        stated = str((found.get("data") or {}).get(DRIVER, "0"))
        last = int(stated) if stated.isdecimal() else 0
        if self._uid not in ("", uid):
            raise Superseded(
                "this driver of the Verification ends and reports nothing more, since its "
                "Verification was deleted and one of the same name was created"
            )
        if self._number is not None and last != self._number:
            raise Superseded(
                f"this driver of the Verification, number {self._number} by its report, ends and "
                f"reports nothing more, since a later one, number {last}, has begun"
            )
        self._uid, self._version = uid, _version(found)
        return self._number or last + 1


def _version(found: dict[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("resourceVersion", ""))


def publisher_for(report: Report, check: Callable[[], None] = lambda: None) -> Publisher:
    """Return the publisher for the destination that the settings state. `check`: raises
    `Superseded` if a later driver works on the run."""
    if report.directory is not None:
        return DirectoryPublisher(Path(report.directory))
    assert report.config_map is not None, "settings.check saw to it"
    assert report.namespace is not None, "settings.check saw to it"
    server, account = report.server, None if report.account is None else Path(report.account)
    if server is None:
        server, account = api_server(), ACCOUNT
    return ConfigMapPublisher(
        report.namespace, report.config_map, server=server, account=account, check=check
    )


def api_server() -> str:
    """Return the URL of the API server of the Kubernetes in which this pod runs."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
