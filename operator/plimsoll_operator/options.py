"""The operator's options, read from environment variables that the chart sets."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.release import RELEASE
from plimsoll_operator.api.labels import (
    API_SERVER_PORTS,
    CONTROLLER_PORT,
    HEALTH_PORT,
    METRICS_PORT,
    Manifest,
)

TOPIC_ID_KEY_BYTES = 16


class BadOption(Exception):
    """Raised if an environment variable is missing or invalid. The message is a sentence that names
    the variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """The settings of one operator process.

    `identity`: the holder identity in Leases. `broker_image`: the image of this operator's own
    release; `broker_images`: by release, those of other releases that brokers may run.
    `spark_image`: empty: Verifications are not run, unless they name an image. `no_driver`: a
    sentence that says why no Verification can run at all; empty: they can. `driver_output`: where a
    user finds the log output of the driver's Job `{job}`. `image_pull_secrets`: names of Secrets,
    each in the namespace of the created pods. `set_user`: True if these pods state the user and the
    groups that they run as. `controllers`: the operator's host:port addresses for brokers.
    `namespaces`: those watched; empty: all. `namespace`: the operator's own; empty: unknown.
    `server_names`: names by which clients reach brokers, besides those of Services. `metrics_from`:
    NetworkPolicy peers that may read brokers' metrics; empty: the labelled namespaces of scrapers.
    `pod_monitors`, `tls_routes`, `certificates`: True if LogClusters may have PodMonitors,
    TLSRoutes, and Certificates of cert-manager. `settings`: defaults for what a LogCluster does not
    state. `topic_id_key`: random bytes of this process (`VolatileState`). `history_days`,
    `history_bytes`: bounds on the archived history of each cluster. `backup_directory`: the volume
    for backups of metadata; None: none is mounted. `local_faults`: True if
    brokers are processes of this machine, whose kubelet pauses them on request. `shared_drills`:
    True if drills may disturb what all LogClusters share: this operator and its API calls.
    """

    identity: str
    broker_image: str
    broker_images: Mapping[str, str] = field(default_factory=dict)
    spark_image: str = ""
    no_driver: str = ""
    driver_output: str = "kubectl logs job/{job}"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    set_user: bool = True
    controllers: tuple[str, ...]
    controller_port: int = CONTROLLER_PORT
    metrics_port: int = METRICS_PORT
    health_port: int = HEALTH_PORT
    namespaces: tuple[str, ...] = ()
    namespace: str = ""
    server_names: tuple[str, ...] = ()
    metrics_from: tuple[Manifest, ...] = ()
    pod_monitors: bool = False
    tls_routes: bool = False
    certificates: bool = False
    api_server_ports: tuple[int, ...] = API_SERVER_PORTS
    settings: Settings = field(default_factory=Settings)
    topic_id_key: bytes = field(default=b"", repr=False)
    history_days: int = 30
    history_bytes: int = 4 * 1024 * 1024
    backup_directory: Path | None = None
    local_faults: bool = False
    shared_drills: bool = False
    log_level: str = "info"
    log_level_file: str = ""

    @property
    def images(self) -> dict[str, str]:
        """Return the broker image by release, for each release that brokers may run, this
        operator's own included."""
        return {**self.broker_images, RELEASE: self.broker_image}


def from_environment(env: Mapping[str, str] | None = None) -> OperatorOptions:
    """Return the options in the environment `env` (None: the process's own). Raises BadOption."""
    env = os.environ if env is None else env
    port = _integer(env, "PLIMSOLL_CONTROLLER_PORT", CONTROLLER_PORT)
    return OperatorOptions(
        identity=env.get("POD_NAME") or socket.gethostname(),
        broker_image=_required(env, "PLIMSOLL_BROKER_IMAGE"),
        broker_images=_pairs(env, "PLIMSOLL_BROKER_IMAGES"),
        spark_image=env.get("PLIMSOLL_SPARK_IMAGE", ""),
        image_pull_policy=env.get("PLIMSOLL_IMAGE_PULL_POLICY", "IfNotPresent"),
        image_pull_secrets=_list(env.get("PLIMSOLL_IMAGE_PULL_SECRETS", "")),
        set_user=_boolean(env, "PLIMSOLL_SET_USER", default=True),
        controllers=_list(_required(env, "PLIMSOLL_CONTROLLERS")),
        controller_port=port,
        metrics_port=_integer(env, "PLIMSOLL_METRICS_PORT", METRICS_PORT),
        health_port=_integer(env, "PLIMSOLL_HEALTH_PORT", HEALTH_PORT),
        namespace=env.get("POD_NAMESPACE", ""),
        metrics_from=_peers(env, "PLIMSOLL_METRICS_FROM"),
        pod_monitors=_boolean(env, "PLIMSOLL_POD_MONITORS", default=False),
        tls_routes=_boolean(env, "PLIMSOLL_TLS_ROUTES", default=False),
        certificates=_boolean(env, "PLIMSOLL_CERTIFICATES", default=False),
        shared_drills=_boolean(env, "PLIMSOLL_DRILLS", default=False),
        api_server_ports=_ports(env, "PLIMSOLL_API_SERVER_PORTS") or API_SERVER_PORTS,
        namespaces=_list(env.get("PLIMSOLL_WATCH_NAMESPACES", "")),
        settings=Settings(
            session_timeout_ms=1000 * _integer(env, "PLIMSOLL_SESSION_TIMEOUT_SECONDS", 6)
        ),
        topic_id_key=secrets.token_bytes(TOPIC_ID_KEY_BYTES),
        history_days=_integer(env, "PLIMSOLL_HISTORY_DAYS", 30),
        history_bytes=_integer(env, "PLIMSOLL_HISTORY_MEBIBYTES", 4) * 1024 * 1024,
        backup_directory=_directory(env, "PLIMSOLL_BACKUP_DIRECTORY"),
        log_level=env.get("PLIMSOLL_LOG_LEVEL", "info"),
        log_level_file=env.get("PLIMSOLL_LOG_LEVEL_FILE", ""),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if not value:
        raise BadOption(f"The operator's environment variable {name} is not set.")
    return value


def _directory(env: Mapping[str, str], name: str) -> Path | None:
    value = env.get(name, "")
    return Path(value) if value else None


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise BadOption(
            f"The operator's environment variable {name} must be a whole number, not {text!r}."
        )
    return int(text)


def _boolean(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = env.get(name, "")
    if text not in ("", "true", "false"):
        raise BadOption(
            f"The operator's environment variable {name} must be true or false, not {text!r}."
        )
    return default if not text else text == "true"


def _ports(env: Mapping[str, str], name: str) -> tuple[int, ...]:
    parts = _list(env.get(name, ""))
    if not all(part.isdigit() for part in parts):
        raise BadOption(
            f"The operator's environment variable {name} must be a list of ports, not "
            f"{env[name]!r}."
        )
    return tuple(int(part) for part in parts)


def _peers(env: Mapping[str, str], name: str) -> tuple[Manifest, ...]:
    """Return the NetworkPolicy peers in the variable `name`, a JSON array; empty if it is not set.
    Raises BadOption."""
    try:
        found = json.loads(env.get(name) or "[]")
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(peer, dict) for peer in found):
        raise BadOption(
            f"The operator's environment variable {name} must be a JSON array of NetworkPolicy "
            "peers."
        )
    return tuple(found)


def _pairs(env: Mapping[str, str], name: str) -> dict[str, str]:
    found = {}
    for part in _list(env.get(name, "")):
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise BadOption(
                f"The operator's environment variable {name} holds {part!r}, which is not of the "
                "form RELEASE=IMAGE."
            )
        found[key] = value
    return found


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
