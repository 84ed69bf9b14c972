"""Publishes progress and verdict: to one ConfigMap through the API server, or to a directory.

Called by `run`. It patches the ConfigMap with the pod's own service account, using only the
standard library. A refusal of the API server is final; a missing answer is retried while time
lasts. The ConfigMap holds the number of the driver that writes it. A driver claims the next number
before it looks at the topic or at the evidence of its run. Each patch is for a version of the
ConfigMap with the driver's own number. So a driver that was paused, or that runs on a lost node,
cannot write over its successor, whatever it saw before. After a verdict no number is given out.
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
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from plimsoll_spark.attempts import Claim, Superseded
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
DRIVER_ID = "driverId"
"""The key with a random text of that driver, by which it knows its own number if the answer to its
claim is lost."""
VERDICT = "verdict.json"
"""The key with the verdict."""
ENDED = "ended"
"""The key of the operator's note that the run has ended without a verdict, with the reason."""
FINAL_STATUSES = frozenset({400, 401, 403, 404, 413, 422})

log = logging.getLogger(__name__)


class PublishFailed(RuntimeError):
    """Raised if the texts could not be stored: the destination refused them, or did not answer in
    time."""


class Publisher(Protocol):
    """Stores the texts that a verification shows to the operator or the user, each under a name."""

    def claim(self, *, within_s: float, alone: bool = False) -> Claim:
        """Claim the place of the newest driver, before this one does anything else: from now on
        `put` of every other driver raises `Superseded`. Raises `Superseded` if there is a verdict,
        or if `alone` is True and another driver has claimed it; `PublishFailed` as `put` does."""

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

    def claim(self, *, within_s: float, alone: bool = False) -> Claim:
        """Return a claim without an order: only users start drivers with a directory."""
        there = self._directory.glob("*.json") if self._directory.exists() else ()
        return Claim(texts={path.name: path.read_text() for path in there})

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
    ) -> None:
        """Create a publisher. `server`: the URL of the API server. `account`: the folder with the
        token and the CA certificate for it; None: the API server requires no token."""
        self._url = f"{server}/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._account = account
        self._id = uuid.uuid4().hex
        self._claim: Claim | None = None  # None: not claimed yet
        self._version = ""  # resourceVersion of the ConfigMap; "": unknown

    def claim(self, *, within_s: float, alone: bool = False) -> Claim:
        self._repeated(partial(self._claim_now, alone=alone), within_s)
        assert self._claim is not None
        return self._claim

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Patch the ConfigMap; claim it first if that was not done. Raises `PublishFailed`,
        `Superseded`."""
        self._repeated(partial(self._put_now, texts), within_s)

    def _repeated(self, request: Callable[[], None], within_s: float) -> None:
        """Make a request. An attempt without an answer is repeated, since each is idempotent."""
        until_s, wait_s = time.monotonic() + within_s, BACKOFF_S
        while True:
            problem = self._attempt(request)
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

    def _attempt(self, request: Callable[[], None]) -> str | None:
        """Make a request once. Return None if that is done, else why it is not. Raises
        `PublishFailed`, `Superseded`."""
        try:
            request()
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
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._version = ""
            return str(error)

    def _claim_now(self, *, alone: bool) -> None:
        """Read the ConfigMap, and patch it with the next number, unless it has this driver's
        already. Raises `Superseded`."""
        found = self._request("GET")
        data = dict(found.get("data") or {})
        last, is_mine = _number(data), data.get(DRIVER_ID) == self._id
        if VERDICT in data:
            raise Superseded(
                "this driver of the Verification ends and does nothing, since the Verification has "
                "its verdict"
            )
        _refuse_ended(data)
        if last and alone and not is_mine:
            raise Superseded(
                "this driver of the Verification ends and does nothing, since another one, number "
                f"{last}, has begun, and no list of its records is kept (spec.evidence)"
            )
        claim = Claim(report=_uid(found), number=last if is_mine else last + 1, texts=data)
        version = _version(found)
        if not is_mine:
            version = self._patched(claim, version, {DRIVER_ID: self._id})
        self._claim, self._version = claim, version

    def _put_now(self, texts: Mapping[str, str]) -> None:
        """Patch the ConfigMap, after reading it if its version is unknown. Raises `Superseded`."""
        if self._claim is None:
            self._claim_now(alone=False)
        assert self._claim is not None
        if not self._version:
            found = self._request("GET")
            self._refuse_later(self._claim, found)
            self._version = _version(found)
        self._version = self._patched(self._claim, self._version, texts)

    def _patched(self, claim: Claim, version: str, texts: Mapping[str, str]) -> str:
        """Patch this version of the ConfigMap with texts and the driver's number, and return the
        new version."""
        body = {
            "metadata": {"uid": claim.report, "resourceVersion": version},
            "data": {**texts, DRIVER: str(claim.number)},
        }
        return _version(self._request("PATCH", json.dumps(body).encode()))

    def _refuse_later(self, claim: Claim, found: dict[str, Any]) -> None:
        """Raise `Superseded` if the ConfigMap is another one now, or has another driver's
        number."""
        if _uid(found) != claim.report:
            raise Superseded(
                "this driver of the Verification ends and reports nothing more, since its "
                "Verification was deleted and one of the same name was created"
            )
        data = found.get("data") or {}
        _refuse_ended(data)
        last = _number(data)
        if last != claim.number:
            raise Superseded(
                f"this driver of the Verification, number {claim.number} by its report, ends and "
                f"reports nothing more, since a later one, number {last}, has begun"
            )


def _refuse_ended(data: Mapping[str, Any]) -> None:
    """Raise `Superseded` if the operator has ended the run, since it took the driver for dead."""
    if ENDED in data:
        raise Superseded(
            "this driver of the Verification ends and reports nothing more, since the operator has "
            f"ended the Verification without a verdict ({data[ENDED]})"
        )


def _number(data: Mapping[str, Any]) -> int:
    """Return the number of the driver that has claimed a report; 0 if none has."""
    stated = str(data.get(DRIVER, ""))
    return int(stated) if stated.isdecimal() else 0


def _uid(found: dict[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("uid", ""))


def _version(found: dict[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("resourceVersion", ""))


def publisher_for(report: Report) -> Publisher:
    """Return the publisher for the destination that the settings state."""
    if report.directory is not None:
        return DirectoryPublisher(Path(report.directory))
    assert report.config_map is not None, "settings.check saw to it"
    assert report.namespace is not None, "settings.check saw to it"
    server, account = report.server, None if report.account is None else Path(report.account)
    if server is None:
        server, account = api_server(), ACCOUNT
    return ConfigMapPublisher(report.namespace, report.config_map, server=server, account=account)


def api_server() -> str:
    """Return the URL of the API server of the Kubernetes in which this pod runs."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
