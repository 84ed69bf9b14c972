"""An auditor reads each replica's own file, and damage there has no other consequence."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_periodic_chores import SMALL
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import iter_headers
from plimsoll_wire.fetch import DEBUGGING_CONSUMER, FetchedPartition

pytestmark = pytest.mark.usefixtures("small_segments")

Three = tuple[Broker, Broker, Broker]
CRC_AT = 17


async def own_copy(client: Client, offset: int, size: int = 2**20) -> FetchedPartition:
    values = fetch_values(
        offset=offset,
        replica_id=DEBUGGING_CONSUMER,
        max_wait=60_000,
        min_bytes=2**20,
        partition_bytes_max=size,
    )
    reply = await client.ask(ApiKey.FETCH, 12, values)
    one = reply.responses[0].partitions[0]
    code, records = int(one.error_code), one.records or b""
    return FetchedPartition(0, code, one.high_watermark, one.log_start_offset, records)


async def written(controller: Controller, three: Three, batches: int, **configs: str) -> None:
    """Batches of three records, committed on all brokers, and known to be."""
    controller.create("t", (0, 1, 2), **configs)
    client = await three[0].client()
    for _ in range(batches):
        assert (await client.produce("t", a_batch(3)))[0] == Code.NONE
    await until(lambda: all(b.hosted("t").replica.high_watermark == 3 * batches for b in three))


def damage(broker: Broker, change: Callable[[bytes], bytes], segment: int = 0) -> None:
    """Change the file of a segment behind the broker's back."""
    path = broker.directory / "t-0" / f"{segment:020d}.log"
    content = change(path.read_bytes())
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
        os.fsync(file.fileno())


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def bases(found: FetchedPartition) -> list[int]:
    return [header.base_offset for header in iter_headers(found.records)]


async def test_followers_serve_own_files_to_auditors(controller: Controller, three: Three) -> None:
    await written(controller, three, 4)
    copies = [await own_copy(await broker.client(), 0) for broker in three]
    assert {one.code for one in copies} == {Code.NONE}
    assert len({bytes(one.records) for one in copies}) == 1
    assert bases(copies[1]) == [0, 3, 6, 9]
    assert {(one.high_watermark, one.log_start_offset) for one in copies} == {(12, 0)}


async def test_consumers_are_still_turned_to_leader(controller: Controller, three: Three) -> None:
    await written(controller, three, 1)
    client = await three[1].client()
    assert (await client.fetch("t", 0)).code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("damaged", [0, 1])
async def test_flipped_byte_in_file_reaches_auditor(
    controller: Controller, three: Three, damaged: int
) -> None:
    """Of the newest batches, which consumers get from memory; and the replica stays in service."""
    await written(controller, three, 4)
    size = len(a_batch(3))
    damage(three[damaged], flipped(2 * size + CRC_AT))
    client = await three[damaged].client()
    found = await own_copy(client, 0)
    healthy = await own_copy(await three[2].client(), 0)
    assert len(found.records) == len(healthy.records)
    assert bytes(found.records) != bytes(healthy.records)
    assert (await own_copy(client, 6)).code == Code.NONE, "the CRC is the auditor's to check"
    assert not three[damaged].hosted("t").replica.failed


async def test_batch_cut_out_shows_as_gap(controller: Controller, three: Three) -> None:
    await written(controller, three, 4)
    size = len(a_batch(3))
    damage(three[1], lambda content: content[:size] + content[2 * size :])
    client = await three[1].client()
    assert bases(await own_copy(client, 0)) == [0, 6, 9]
    assert bases(await own_copy(client, 3)) == [6, 9]
    assert bases(await own_copy(client, 0, size)) == [0]
    assert bases(await own_copy(client, 3, size)) == [6], "the next batch is not far"


async def test_file_that_ends_early_is_corrupt(controller: Controller, three: Three) -> None:
    await written(controller, three, 4)
    size = len(a_batch(3))
    damage(three[1], lambda content: content[: 2 * size + 30])
    client = await three[1].client()
    assert bases(await own_copy(client, 0)) == [0, 3]
    lost = await own_copy(client, 6)
    assert (lost.code, lost.high_watermark, lost.log_start_offset) == (Code.CORRUPT_MESSAGE, 12, 0)
    assert not three[1].hosted("t").replica.failed


async def test_wrong_length_hides_no_later_segment(controller: Controller, three: Three) -> None:
    await written(controller, three, 30, **SMALL)
    second = three[1].hosted("t").log.segments[1].base_offset
    damage(three[1], flipped(8), segment=0)
    client = await three[1].client()
    assert (await own_copy(client, 0)).code == Code.CORRUPT_MESSAGE
    assert bases(await own_copy(client, second))[0] == second


async def test_damaged_hint_misleads_no_consumer(controller: Controller, three: Three) -> None:
    """A wrong offset delta states the offset of another batch behind the damaged one."""
    await written(controller, three, 4)
    size, delta_at = len(a_batch(3)), 23
    damage(three[0], flipped(size + delta_at + 3))
    client = await three[0].client()
    await own_copy(client, 0, 2 * size)
    three[0].hosted("t").log.recent.forget()
    hints = three[0].hosted("t").log.reader
    assert not hints._hints.keys() & hints._stored_hints.keys()


async def test_offset_below_log_start_states_start(controller: Controller, three: Three) -> None:
    await written(controller, three, 4)
    three[1].hosted("t").log.advance_log_start(6)
    found = await own_copy(await three[1].client(), 0)
    assert (found.code, found.log_start_offset) == (Code.OFFSET_OUT_OF_RANGE, 6)


async def test_records_above_high_watermark_stay_hidden(
    controller: Controller, three: Three
) -> None:
    await written(controller, three, 4)
    three[1].hosted("t").replica.high_watermark = 6
    client = await three[1].client()
    assert bases(await own_copy(client, 0)) == [0, 3]
    at_end = await own_copy(client, 6)
    assert (at_end.code, len(at_end.records)) == (Code.NONE, 0)
