"""How brokers and controllers talk to each other: steps, what they wait for, certificates."""

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.security.inside_modes import SINCE
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import (
    AllowCertificates,
    BrokerFigures,
    InsideFigures,
    SetInsideMode,
)
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.security.inside import InsideMode

OFF, PERMISSIVE, REQUIRED = InsideMode.OFF, InsideMode.PERMISSIVE, InsideMode.REQUIRED


def finalise(world: Any) -> None:
    world.commit(MetadataVersionFinalized(cause="t", metadata_version=SINCE))


def ask(world: Any, mode: InsideMode) -> Any:
    return world.ask(SetInsideMode(mode=mode))


def allow(world: Any, broker_id: int, *sha256: str) -> Any:
    return world.ask(AllowCertificates(broker_id=BrokerId(broker_id), sha256=sha256))


def tell(world: Any, broker_id: int, **told: Any) -> None:
    """The broker's heartbeat has said so."""
    figures = BrokerFigures(inside=InsideFigures(**told))
    world.soft.contacts[BrokerId(broker_id)].figures = figures


@pytest.fixture
def ready(world: Any) -> Any:
    finalise(world)
    assert isinstance(ask(world, PERMISSIVE), Done)
    for broker_id in range(3):
        assert isinstance(allow(world, broker_id, f"key {broker_id}"), Done)
        tell(world, broker_id, sha256=f"key {broker_id}")
    return world


def test_inside_mode_waits_for_its_metadata_version(world: Any) -> None:
    for answer in (ask(world, PERMISSIVE), allow(world, 1, "key")):
        assert isinstance(answer, Refused)
        assert answer.reason == "MetadataTooOld"
    assert isinstance(ask(world, OFF), Done)


def test_inside_mode_changes_one_step_at_a_time(ready: Any) -> None:
    assert isinstance(ask(ready, REQUIRED), Done)
    leap = ask(ready, OFF)
    assert isinstance(leap, Refused)
    assert "set it to Permissive first" in leap.message
    for mode in (PERMISSIVE, OFF):
        assert isinstance(ask(ready, mode), Done)
        assert ready.image.inside.mode is mode
    assert isinstance(ask(ready, REQUIRED), Refused)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({}, "presents no certificate yet"),
        ({"sha256": "stolen"}, "not in the metadata log"),
        ({"sha256": "key 1", "plaintext": 2}, "has 2 connections in plaintext"),
    ],
)
def test_required_waits_for_every_broker_that_takes_part(
    ready: Any, told: dict[str, Any], sentence: str
) -> None:
    tell(ready, 1, **told)
    answer = ask(ready, REQUIRED)
    assert isinstance(answer, Refused)
    assert answer.reason == "InsideNotReady"
    assert "broker 1" in answer.message
    assert sentence in answer.message
    assert ready.image.inside.mode is PERMISSIVE


def test_required_mode_waits_for_releases_and_heartbeats(
    ready: Any,
) -> None:
    ready.soft.contacts[BrokerId(2)].figures = BrokerFigures()
    assert isinstance(ask(ready, REQUIRED), Refused)
    del ready.soft.contacts[BrokerId(2)]
    assert isinstance(ask(ready, REQUIRED), Refused)


def test_off_waits_for_brokers_that_insist_on_tls(ready: Any) -> None:
    assert isinstance(ask(ready, REQUIRED), Done)
    tell(ready, 2, sha256="key 2", only_tls=True)
    assert isinstance(ask(ready, PERMISSIVE), Done)
    answer = ask(ready, OFF)
    assert isinstance(answer, Refused)
    assert "broker 2 still requires TLS" in answer.message
    tell(ready, 2, sha256="key 2")
    assert isinstance(ask(ready, OFF), Done)


def test_required_mode_does_not_wait_for_absent_broker(ready: Any) -> None:
    tell(ready, 1)
    ready.kill(1)
    assert isinstance(ask(ready, REQUIRED), Done)


def test_certificates_are_committed_once_bounded_and_forgotten(ready: Any) -> None:
    before = len(ready.log)
    assert isinstance(allow(ready, 1, "key 1"), Done)
    assert len(ready.log) == before
    assert isinstance(allow(ready, 1, "next", "key 1"), Done)
    assert ready.image.inside.of(1) == ("next", "key 1")
    assert isinstance(allow(ready, 1, "a", "b", "c"), Refused)
    assert isinstance(allow(ready, 1), Done)
    assert ready.image.inside.of(1) == ()
    assert ready.image.inside.of(0) == ("key 0",)


def test_image_with_certificates_survives_a_snapshot(ready: Any) -> None:
    assert decode_image(encode_image(ready.image)).inside == ready.image.inside
    off = replace(ready.image, inside=type(ready.image.inside)())
    assert b'"inside"' not in encode_image(off)
