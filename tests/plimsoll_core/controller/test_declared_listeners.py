"""The listeners of a LogCluster: what is committed of them, and what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.listeners import Advertised, Listener
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import ListenersConfigured, MetadataVersionFinalized
from plimsoll_core.controller.brokers.declared_listeners import LISTENERS_MAX, SINCE
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import DeclareListeners
from plimsoll_core.messages.requests import Done, Refused

PLAIN = Listener(name="internal", port=9092)
TLS = Listener(name="tls", port=9094, tls_version_min="1.2")


def outside(*rows: tuple[int, str, int]) -> Listener:
    """A listener for clients outside, with brokers' addresses: (broker, host, port)."""
    found = (Advertised(broker_id=BrokerId(one), host=host, port=port) for one, host, port in rows)
    return Listener(name="ext", port=9094, advertised=tuple(found))


def finalised(world: Any, version: int = NEWEST) -> Any:
    world.commit(MetadataVersionFinalized(cause="test", metadata_version=version))
    return world


def test_declared_listeners_are_committed_once(world: Any) -> None:
    finalised(world)
    assert isinstance(world.ask(DeclareListeners(listeners=(PLAIN, TLS))), Done)
    assert world.image.listeners == (PLAIN, TLS)
    assert isinstance(world.log[-1], ListenersConfigured)
    length = len(world.log)
    assert isinstance(world.ask(DeclareListeners(listeners=(PLAIN, TLS))), Done)
    assert len(world.log) == length
    assert isinstance(world.ask(DeclareListeners(listeners=())), Done)
    assert world.image.listeners == ()


def test_listeners_wait_for_their_metadata_version(world: Any) -> None:
    finalised(world, SINCE - 1)
    answer = world.ask(DeclareListeners(listeners=(TLS,)))
    assert isinstance(answer, Refused)
    assert answer.reason == "MetadataTooOld"
    assert world.image.listeners == ()
    assert isinstance(world.ask(DeclareListeners(listeners=())), Done)


@pytest.mark.parametrize(
    ("listeners", "sentence"),
    [
        ((TLS, Listener(name="tls", port=9095)), "name tls"),
        ((TLS, Listener(name="other", port=9094)), "port 9094"),
        ((Listener(name="tls", port=9091),), "9091"),
        ((Listener(name="tls", port=80),), "80"),
        ((Listener(name="REPLICATION", port=9095),), "REPLICATION"),
        ((Listener(name="", port=9095),), "''"),
        ((Listener(name="a" * 12, port=9095),), "lower-case"),
        ((outside((0, "b0", 1), (0, "b0", 2)),), "must have exactly one address for each broker"),
        ((outside((1, "b1", 1), (0, "b0", 1)),), "in the order of"),
        ((outside((0, "", 9094)),), "not a valid address"),
        ((outside((0, "b0", 0)),), "port 0"),
        (tuple(Listener(name=f"l{n}", port=9200 + n) for n in range(LISTENERS_MAX + 1)), "8"),
    ],
    ids=[
        "name twice",
        "port twice",
        "reserved",
        "low port",
        "endpoint",
        "no name",
        "long",
        "broker twice",
        "no order",
        "no host",
        "no port",
        "many",
    ],
)
def test_impossible_listeners_are_refused_with_a_sentence(
    world: Any, listeners: tuple[Listener, ...], sentence: str
) -> None:
    finalised(world)
    answer = world.ask(DeclareListeners(listeners=listeners))
    assert isinstance(answer, Refused)
    assert sentence in answer.message
    assert world.image.listeners == ()


def test_image_with_listeners_survives_a_snapshot(world: Any) -> None:
    finalised(world)
    addresses = outside((0, "203.0.113.1", 31_000), (2, "b2.example.com", 443))
    world.ask(DeclareListeners(listeners=(PLAIN, TLS, replace(addresses, port=9095))))
    assert world.image.listeners[2].advertised_of(2) is not None
    assert decode_image(encode_image(world.image)) == world.image


def test_snapshot_without_listeners_is_readable_by_older_releases(world: Any) -> None:
    assert b'"listeners"' not in encode_image(world.image)
