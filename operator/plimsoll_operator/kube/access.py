"""How to reach the API server: from inside a pod, or by a kubeconfig file.

Tokens are read again every minute, because the kubelet rotates them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0


class NoCluster(Exception):
    """Neither a pod's ServiceAccount nor a usable kubeconfig was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The server's address and how to prove who we are.  Certificates are PEM text."""

    server: str
    certificate_authority: str | None = None
    token: str | None = None
    token_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None

    def ssl_context(self) -> ssl.SSLContext | None:
        """For https servers."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.certificate_authority)
        if self.client_certificate is not None:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


class Token:
    """The current bearer token, if there is one."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._value = access.token
        self._read_at: float | None = None

    def value(self) -> str | None:
        now = time.monotonic()
        stale = self._read_at is None or now - self._read_at > TOKEN_SECONDS
        if self._access.token_file is not None and stale:
            self._value = str(self._access.token_file.read_text()).strip()
            self._read_at = now
        return self._value


def find_access() -> Access:
    """The pod's own ServiceAccount, else the current context of `KUBECONFIG`."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host and (SERVICE_ACCOUNT / "token").exists():
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        address = f"[{host}]" if ":" in host else host
        return Access(
            server=f"https://{address}:{port}",
            certificate_authority=(SERVICE_ACCOUNT / "ca.crt").read_text(),
            token_file=SERVICE_ACCOUNT / "token",
        )
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.exists():
        raise NoCluster(f"This is not a pod, and there is no kubeconfig at {path}.")
    return from_kubeconfig(path)


def from_kubeconfig(path: Path) -> Access:
    """The current context: certificates or a token; no exec plug-ins."""
    config = yaml.safe_load(path.read_text())
    context = _named(config, "contexts", config["current-context"])["context"]
    cluster = _named(config, "clusters", context["cluster"])["cluster"]
    user = _named(config, "users", context["user"])["user"]
    return Access(
        server=cluster["server"],
        certificate_authority=_text(cluster, "certificate-authority", path),
        token=user.get("token"),
        client_certificate=_file(user, "client-certificate", path),
        client_key=_file(user, "client-key", path),
    )


def _named(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry["name"] == name:
            return dict(entry)
    raise NoCluster(f"The kubeconfig has no {section} entry named {name}.")


def _text(entry: dict[str, Any], key: str, path: Path) -> str | None:
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    if name := entry.get(key):
        return (path.parent / str(name)).read_text()
    return None


def _file(entry: dict[str, Any], key: str, path: Path) -> Path | None:
    """Python's TLS reads certificates from files only; inline ones go to a private file."""
    if name := entry.get(key):
        return path.parent / str(name)
    data = entry.get(f"{key}-data")
    if not data:
        return None
    content = base64.b64decode(data)
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"plimsoll-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    target = directory / f"{key}-{hashlib.sha256(content).hexdigest()[:16]}.pem"
    if not target.exists() or target.read_bytes() != content:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return target
