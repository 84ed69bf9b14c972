"""Addresses and credentials of the API server: from inside a pod, or by a kubeconfig file.

The official client's loaders read both. They are read again every minute by the monotonic clock,
because the kubelet rotates tokens (and the official refresh uses the wall clock).
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from plimsoll_operator.kube.errors import Unavailable

TOKEN_SECONDS = 60.0
_UNREADABLE = (ConfigException, OSError, yaml.YAMLError, TypeError, ValueError)
"""Errors of the loaders; the last two for a file that is malformed or half written."""


class NoCluster(Exception):
    """Neither a pod's ServiceAccount nor a usable kubeconfig was found."""


@dataclass(frozen=True, slots=True)
class Access:
    """The server's address, its CA, and the credentials."""

    configuration: Configuration
    """Changed by its own refresh only: a connection takes a copy."""

    async def authorization(self) -> str | None:
        """Return the present `Authorization` header. Raises `Unavailable` if a token that is due
        cannot be read."""
        found: str | None = await self.configuration.get_api_key_with_prefix("BearerToken")
        return found


Load = Callable[[Configuration], Awaitable[None]]


async def find_access() -> Access:
    """Return the pod's own ServiceAccount, else the current context of `KUBECONFIG`."""
    if os.environ.get(SERVICE_HOST_ENV_NAME) and Path(SERVICE_TOKEN_FILENAME).exists():
        return await _loaded(_load_service_account, "This pod's ServiceAccount")
    paths = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return await from_kubeconfig(paths)


def namespace_of(paths: str, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context, `default` if it names none. Raises
    `NoCluster`."""
    try:
        contexts, current = list_kube_config_contexts(paths)
    except _UNREADABLE as error:
        raise NoCluster(f"The kubeconfig {paths} cannot be used: {error}") from error
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str((chosen.get("context") or {}).get("namespace") or "default")


async def from_kubeconfig(paths: str, context: str | None = None) -> Access:
    """Return the current context (or another one) of one file, or of several separated by colons.
    An exec plug-in runs again every minute, within the timeout of the request that needs it."""
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep)):
        raise NoCluster(f"This is not a pod, and there is no kubeconfig at {paths}.")

    async def load(configuration: Configuration) -> None:
        await load_kube_config(
            config_file=paths,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )

    return await _loaded(load, f"The kubeconfig {paths}")


async def _load_service_account(configuration: Configuration) -> None:
    load_incluster_config(client_configuration=configuration, try_refresh_token=False)


async def _loaded(load: Load, source: str) -> Access:
    configuration = Configuration()
    try:
        await load(configuration)
    except _UNREADABLE as error:
        raise NoCluster(f"{source} cannot be used: {error}") from error
    configuration.refresh_api_key_hook = Refresh(load)
    return Access(configuration)


class Refresh:
    """The official client's hook before each request: reloads credentials older than a minute."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loaded_s = time.monotonic()

    async def __call__(self, configuration: Configuration) -> None:
        now_s = time.monotonic()
        if now_s - self._loaded_s < TOKEN_SECONDS:
            return
        try:
            await self._load(configuration)
        except _UNREADABLE as error:
            raise Unavailable(0, f"cannot reload credentials: {error}") from error
        self._loaded_s = now_s
