"""What the chart tells the operator, from the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_operator.manifests.labels import CONTROLLER_PORT, HEALTH_PORT, METRICS_PORT


class BadOption(Exception):
    """A variable is missing or is not what it should be; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`spark_image` empty: Verifications are not run.  `namespaces` empty: all are watched."""

    identity: str
    broker_image: str
    spark_image: str = ""
    image_pull_policy: str = "IfNotPresent"
    controllers: tuple[str, ...]
    controller_port: int = CONTROLLER_PORT
    metrics_port: int = METRICS_PORT
    health_port: int = HEALTH_PORT
    namespaces: tuple[str, ...] = ()
    session_timeout_ms: int = 6_000
    log_level: str = "info"


def from_environment(env: Mapping[str, str] | None = None) -> Options:
    """The options, or a sentence about the variable that is wrong."""
    env = os.environ if env is None else env
    port = _integer(env, "PLIMSOLL_CONTROLLER_PORT", CONTROLLER_PORT)
    return Options(
        identity=env.get("POD_NAME") or socket.gethostname(),
        broker_image=_required(env, "PLIMSOLL_BROKER_IMAGE"),
        spark_image=env.get("PLIMSOLL_SPARK_IMAGE", ""),
        image_pull_policy=env.get("PLIMSOLL_IMAGE_PULL_POLICY", "IfNotPresent"),
        controllers=_list(_required(env, "PLIMSOLL_CONTROLLERS")),
        controller_port=port,
        metrics_port=_integer(env, "PLIMSOLL_METRICS_PORT", METRICS_PORT),
        health_port=_integer(env, "PLIMSOLL_HEALTH_PORT", HEALTH_PORT),
        namespaces=_list(env.get("PLIMSOLL_WATCH_NAMESPACES", "")),
        session_timeout_ms=1000 * _integer(env, "PLIMSOLL_SESSION_TIMEOUT_SECONDS", 6),
        log_level=env.get("PLIMSOLL_LOG_LEVEL", "info"),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if not value:
        raise BadOption(f"{name} is not set.")
    return value


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise BadOption(f"{name} is {text!r}, which is not a whole number.")
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
