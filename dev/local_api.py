"""Sends requests to the API server of a local cluster as its owner, with the credentials in its
kubeconfig.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import yaml

JSON = "application/json"


class LocalApi:
    """Client of the API server of a local cluster in `directory`. The cluster must have printed
    that it is ready."""

    def __init__(self, directory: Path) -> None:
        config = yaml.safe_load((directory / "kubeconfig").read_text())
        cluster = config["clusters"][0]["cluster"]
        self.url: str = cluster["server"]
        self.token: str = config["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.trust = ssl.create_default_context(cadata=authority)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = JSON,
        timeout_s: float = 10,
    ) -> tuple[int, Any]:
        """Send a request and return (status, decoded JSON). Raises urllib.error.HTTPError from
        status 400 on, and OSError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": media, "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout_s, context=self.trust) as reply:
            return reply.status, json.loads(reply.read())
