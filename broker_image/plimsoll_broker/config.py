"""A broker's configuration: a file, and a few overrides from the environment.

`__main__` reads it once; everything else gets the typed value.  An unknown or ill-typed key is
refused with the place where it stands, before anything is touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from uuid import UUID

import msgspec

from plimsoll_core.addresses import ANY_ADDRESS, host_and_port, split_address

BROKER_ID_ENV = "PLIMSOLL_BROKER_ID"
ADVERTISED_HOST_ENV = "PLIMSOLL_ADVERTISED_HOST"
POD_UID_ENV = "PLIMSOLL_POD_UID"
REVISION_ENV = "PLIMSOLL_REVISION"
RACK_ENV = "PLIMSOLL_RACK"
DRILLS_ENV = "PLIMSOLL_ALLOW_DRILLS"
TRANSACTIONS_ENV = "PLIMSOLL_TRANSACTIONS"


class BadConfig(Exception):
    """The configuration cannot be used. The message is a sentence for the user."""


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host and port to listen on, or to be reached at."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of one broker.

    `listen`, `replication`, `metrics`, `health`: the addresses to listen on, for clients,
    followers, Prometheus and the kubelet. A host of 0.0.0.0, :: or "" stands for every address of
    both families. Without `metrics` there is no metrics endpoint. If `health` is None, the
    `metrics` address serves the kubelet, too. `advertised`: the address that clients are told; None
    for `listen`. `controllers`: "host:port" of each; a DNS name stands for all its addresses.

    `revision`: the hash of the pod template that this broker runs with. `on_controller_loss`:
    StopServing if leaders refuse reads and acks=0/1 once another broker may lead without their
    knowledge. `certificates`: a directory with a certificate and a key for each TLS listener; None
    if no TLS listener can be opened. `port_shift`: a number added to the ports of declared
    listeners, for brokers that share a machine. `allow_drills`: True if the controller may order
    faults of a drill. `transactions`: True if clients may use transactions, which are not whole
    yet. `memory_limit_bytes`, `open_files_max`: the memory
    in bytes and the number of descriptors that the process may use; `__main__` fills them in, with
    None for a limit that is unknown or does not exist. `configs`: Kafka's broker configs by
    name."""

    cluster_id: UUID
    broker_id: int | None = None
    data_dir: str
    listen: Address
    advertised: Address | None = None
    replication: Address
    controllers: tuple[str, ...]
    metrics: Address | None = None
    health: Address | None = None
    rack: str | None = None
    pod_uid: str | None = None
    revision: str = ""
    on_controller_loss: Literal["KeepServing", "StopServing"] = "KeepServing"
    certificates: str | None = None
    port_shift: int = 0
    allow_drills: bool = False
    transactions: bool = False
    memory_limit_bytes: int | None = None
    open_files_max: int | None = None
    configs: dict[str, str | int | bool] = {}

    @property
    def id(self) -> int:
        assert self.broker_id is not None, "checked when it was read"
        return self.broker_id

    @property
    def reachable(self) -> Address:
        """The advertised address: its host and port make the client endpoint, and its host the
        replication endpoint, that this broker registers."""
        assert self.advertised is not None, "checked when it was read"
        return self.advertised

    @property
    def kafka_configs(self) -> dict[str, str]:
        """The entries of `configs`, with each value as Kafka writes it in text."""
        return {key: _kafka_text(value) for key, value in self.configs.items()}


def _kafka_text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read(path: Path, environment: Mapping[str, str] = os.environ) -> BrokerConfig:
    """Return the configuration in a JSON or YAML file, with the overrides of the environment. Raise
    BadConfig if the file cannot be read, has an unknown or ill-typed key, or states an invalid
    value."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadConfig(f"the broker's config file cannot be read: {error}") from error
    try:
        if path.suffix in (".yaml", ".yml"):
            config = msgspec.yaml.decode(raw, type=BrokerConfig)
        else:
            config = msgspec.json.decode(raw, type=BrokerConfig)
        config = _overridden(config, environment)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadConfig(f"{path}: {error}") from error
    return _checked(config)


def _overridden(config: BrokerConfig, environment: Mapping[str, str]) -> BrokerConfig:
    advertised, broker_id = config.advertised, config.broker_id
    port = advertised.port if advertised else config.listen.port
    if host := environment.get(ADVERTISED_HOST_ENV):
        advertised = Address(host=host, port=port)
    elif advertised is None and config.listen.host not in ANY_ADDRESS:
        advertised = config.listen
    if number := environment.get(BROKER_ID_ENV):
        broker_id = int(number)
    return msgspec.structs.replace(
        config,
        advertised=advertised,
        broker_id=broker_id,
        revision=environment.get(REVISION_ENV) or config.revision,
        pod_uid=environment.get(POD_UID_ENV) or config.pod_uid,
        rack=environment.get(RACK_ENV) or config.rack,
        allow_drills=environment.get(DRILLS_ENV) == "true" or config.allow_drills,
        transactions=environment.get(TRANSACTIONS_ENV) == "true" or config.transactions,
    )


def _checked(config: BrokerConfig) -> BrokerConfig:
    if config.broker_id is None or config.broker_id < 0:
        raise BadConfig(
            "the broker's config lacks the field broker_id: set it in the config file or by the "
            f"environment variable {BROKER_ID_ENV}"
        )
    if config.advertised is None:
        raise BadConfig(
            "the broker's config lacks the field advertised: set it in the config file or by the "
            f"environment variable {ADVERTISED_HOST_ENV}"
        )
    if not config.controllers:
        raise BadConfig(
            "the list controllers in the broker's config is empty: name at least one host:port"
        )
    for address in config.controllers:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise BadConfig(f"controllers: {error}") from error
        if not host or not 0 < port < 65536:
            raise BadConfig(
                f"the list controllers in the broker's config has {address!r}, which is not of "
                "the form host:port"
            )
    return config
