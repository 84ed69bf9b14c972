"""Publishes progress and verdict: to one ConfigMap through the API server, or to a directory.

Called by `run`. It patches the ConfigMap with the pod's own service account, using only the
standard library. A refusal of the API server is final; a missing answer is retried while time
lasts.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from plimsoll_spark.settings import Report
from plimsoll_spark.whole_files import put_whole

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ATTEMPT_TIMEOUT_S = 5.0
BACKOFF_S = 0.5
BACKOFF_MAX_S = 5.0
FINAL_STATUSES = frozenset({400, 401, 403, 404, 413, 422})

log = logging.getLogger(__name__)


class PublishFailed(RuntimeError):
    """Raised if the texts could not be stored: the destination refused them, or did not answer in
    time."""


class Publisher(Protocol):
    """Stores the texts that a verification shows to the operator or the user, each under a name."""

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Store all texts, replacing those of the same names. Raises `PublishFailed` if that is
        refused, or has not succeeded after `within_s` seconds."""

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
        self, namespace: str, name: str, *, server: str, account: Path | None = None
    ) -> None:
        """Create a publisher. `server`: the URL of the API server. `account`: the folder with the
        token and the CA certificate for it; None: the API server requires no token."""
        self._url = f"{server}/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._account = account

    def put(self, texts: Mapping[str, str], *, within_s: float) -> None:
        """Patch the ConfigMap. An attempt without an answer is repeated, since the patch is
        idempotent. Raises `PublishFailed`."""
        body = json.dumps({"data": dict(texts)}).encode()
        until_s, wait_s = time.monotonic() + within_s, BACKOFF_S
        while True:
            problem = self._attempt(body)
            if problem is None:
                return
            if time.monotonic() + wait_s >= until_s:
                raise PublishFailed(
                    f"the ConfigMap of the Verification's report could not be patched: {problem}"
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)

    def get(self, name: str) -> str | None:
        headers, trust = self._access()
        request = urllib.request.Request(self._url, headers=headers)
        try:
            with urllib.request.urlopen(
                request, timeout=ATTEMPT_TIMEOUT_S, context=trust
            ) as answer:
                found = (json.load(answer).get("data") or {}).get(name)
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.warning(
                "the driver cannot read %s in the ConfigMap at %s, so the run goes on without "
                "that: %s",
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

    def _attempt(self, body: bytes) -> str | None:
        headers, trust = self._access()
        headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(self._url, body, headers, method="PATCH")
        try:
            with urllib.request.urlopen(request, timeout=ATTEMPT_TIMEOUT_S, context=trust):
                return None
        except urllib.error.HTTPError as error:
            with error:
                sentence = f"{error.code} {error.read(500).decode(errors='replace')}"
            if error.code in FINAL_STATUSES:
                raise PublishFailed(
                    f"the API server refused to store the Verification's report: {sentence}"
                ) from error
            return sentence
        except (OSError, http.client.HTTPException) as error:
            return str(error)


def publisher_for(report: Report) -> Publisher:
    """Return the publisher for the destination that the settings state."""
    if report.directory is not None:
        return DirectoryPublisher(Path(report.directory))
    assert report.config_map is not None, "settings.check saw to it"
    assert report.namespace is not None, "settings.check saw to it"
    if report.server is not None:
        account = None if report.account is None else Path(report.account)
        return ConfigMapPublisher(
            report.namespace, report.config_map, server=report.server, account=account
        )
    return ConfigMapPublisher(
        report.namespace, report.config_map, server=api_server(), account=ACCOUNT
    )


def api_server() -> str:
    """Return the URL of the API server of the Kubernetes in which this pod runs."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
