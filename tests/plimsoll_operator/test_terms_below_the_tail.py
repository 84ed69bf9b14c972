"""Positions older than the batches that a controller keeps are judged by their controller terms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.plimsoll_operator.test_group_commit import CLUSTER, a_registration
from tests.plimsoll_operator.test_snapshot_writing import EagerLog, a_controller

from plimsoll_core.cluster.controller_terms import TERMS_MAX
from plimsoll_core.cluster.model import ControllerTerm
from plimsoll_core.cluster.record_versions import UNDERSTOOD
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import (
    Heartbeat,
    LogPosition,
    Refused,
    Registered,
    SetMembers,
)
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.controller.metadata_tail import MetadataTail, Standing

WAIT_S = 30


def a_fetch(offset: int, term_id: str | None) -> FetchMetadata:
    return FetchMetadata(
        cluster_id=CLUSTER,
        broker_id=BrokerId(0),
        offset=MetadataOffset(offset),
        nonce="x",
        term_id=term_id,
        wait_ms_max=0,
    )


@asynccontextmanager
async def leading(log: EagerLog) -> AsyncIterator[Controller]:
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        yield controller
    await controller.stop()
    await asyncio.gather(task, return_exceptions=True)


async def finalise(controller: Controller) -> None:
    """Bring the log to the newest metadata version, with one broker."""
    await controller.request(SetMembers(broker_ids=(BrokerId(0),)))
    registered = await controller.request(a_registration(0))
    assert isinstance(registered, Registered)
    position = LogPosition(
        applied_offset=controller.image.next_offset,
        nonce=controller.tail.end_nonce,
        controller_epoch=controller.epoch,
    )
    await controller.request(
        Heartbeat(
            broker_id=BrokerId(0),
            broker_epoch=registered.broker_epoch,
            position=position,
            metadata_versions=UNDERSTOOD,
            release="0.2.0",
        )
    )


async def grown(path: Path) -> tuple[EagerLog, tuple[ControllerTerm, ...]]:
    """A log of which a second term wrote a snapshot."""
    log = EagerLog(path)
    async with leading(log) as controller:
        await finalise(controller)
    async with leading(log) as controller:
        for number in range(3):
            members = tuple(BrokerId(broker) for broker in range(number + 2))
            await controller.request(SetMembers(broker_ids=members))
        log.wanted = True
        controller.snapshotter.urgent.set()
        await log.released.wait()
        return log, controller.image.terms


async def test_position_of_own_term_gets_a_snapshot(tmp_path: Path) -> None:
    log, terms = await grown(tmp_path)
    (term,) = terms
    async with leading(log) as controller:
        assert controller.tail.start > term.first_offset + 1
        for offset, term_id in ((term.first_offset + 1, term.id), (1, ""), (1, None)):
            update = await controller.fetch_metadata(a_fetch(offset, term_id))
            assert isinstance(update, MetadataUpdate)
            assert update.snapshot is not None
    await log.close()


async def test_position_of_a_foreign_term_ends_the_term(tmp_path: Path) -> None:
    """The epoch is one that this log has, too."""
    log, terms = await grown(tmp_path)
    offset = MetadataOffset(terms[0].first_offset + 1)
    async with leading(log) as controller:
        refused = await controller.fetch_metadata(a_fetch(offset, "foreign"))
        assert isinstance(refused, Refused)
        assert refused.reason == "MetadataRegressed"
        position = LogPosition(
            applied_offset=offset,
            nonce="x",
            controller_epoch=ControllerEpoch(2),
            term_id="foreign",
        )
        heartbeat = Heartbeat(
            broker_id=BrokerId(0),
            broker_epoch=BrokerEpoch(0),
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        assert isinstance(await controller.request(heartbeat), Refused)
        while controller.stalled is None:  # noqa: ASYNC110 - a controller has no event for it
            await asyncio.sleep(0)
        assert controller.stalled.reason == "MetadataRegressed"
    await log.close()


async def test_position_of_a_forgotten_term_is_refused_alone(tmp_path: Path) -> None:
    log, _ = await grown(tmp_path)
    async with leading(log) as controller:
        start = controller.tail.start
        controller.tail.terms = tuple(
            ControllerTerm(id=f"t{number}", first_offset=MetadataOffset(start + number))
            for number in range(TERMS_MAX)
        )
        refused = await controller.fetch_metadata(a_fetch(1, "old"))
        assert isinstance(refused, Refused)
        assert "no longer knows" in refused.message
        position = LogPosition(
            applied_offset=MetadataOffset(1),
            nonce="x",
            controller_epoch=ControllerEpoch(1),
            term_id="old",
        )
        heartbeat = Heartbeat(
            broker_id=BrokerId(0),
            broker_epoch=BrokerEpoch(0),
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        await controller.request(heartbeat)
        assert controller.active
    await log.close()


def test_nonce_decides_where_batches_are_kept() -> None:
    tail = MetadataTail(start=MetadataOffset(5), nonce="n")
    assert tail.standing(MetadataOffset(5), "n", "any") is Standing.WITHIN
    assert tail.standing(MetadataOffset(5), "m", "any") is Standing.DIFFERENT
