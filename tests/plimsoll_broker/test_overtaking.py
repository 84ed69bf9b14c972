"""What is sent behind a refused batch does not begin a producer's log in the middle."""

import pytest
from tests.plimsoll_broker.test_replication import Make, Three, kill, until
from tests.plimsoll_broker.trio import Controller, a_batch

from plimsoll_broker.server.connection_state import (
    IN_FLIGHT_MAX,
    REMEMBERED_MAX,
    REMEMBERED_MS,
    RejectedSequences,
)
from plimsoll_core.cluster.topic_names import NAME_LENGTH_MAX
from plimsoll_core.errors import Code

LAST = 2**31 - 1
NOW = 1_000


def batch(sequence: int, epoch: int = 0, producer: int = 7) -> bytes:
    return a_batch(1, producer=(producer, epoch, sequence))


def overtakes(
    seen: RejectedSequences,
    at: tuple[str, int],
    records: bytes,
    *,
    newest: tuple[int, int] | None = None,
    ms: int = 0,
) -> int | None:
    """`newest`: what the log has of the producer."""
    return seen.overtaken_by(*at, records, {7: newest}.get, NOW + ms)


def refused(sequence: int) -> RejectedSequences:
    found = RejectedSequences()
    found.answered("t", 0, batch(sequence), Code.NOT_ENOUGH_REPLICAS, NOW)
    return found


def test_batch_behind_rejected_one_waits_for_it() -> None:
    seen = refused(3)
    assert overtakes(seen, ("t", 0), batch(4)) == Code.NOT_ENOUGH_REPLICAS
    assert overtakes(seen, ("t", 0), batch(3)) is None
    assert overtakes(seen, ("t", 0), batch(2)) is None
    seen.answered("t", 0, batch(3), Code.NONE, NOW)
    assert not seen
    assert overtakes(seen, ("t", 0), batch(4)) is None


def test_batch_behind_damaged_one_waits_for_it() -> None:
    """Producers send a batch again if it arrived with another CRC. It may have been any one's."""
    seen = RejectedSequences()
    seen.damaged()
    assert overtakes(seen, ("t", 0), batch(4)) == Code.CORRUPT_MESSAGE
    assert overtakes(seen, ("t", 0), batch(0)) is None
    assert overtakes(seen, ("t", 0), batch(4), newest=(0, 3)) is None


def test_batch_waits_for_one_damaged_again() -> None:
    seen = RejectedSequences()
    for _ in range(3):
        seen.damaged()
        assert overtakes(seen, ("t", 0), batch(1)) == Code.CORRUPT_MESSAGE
    assert overtakes(seen, ("t", 0), batch(0)) is None
    assert overtakes(seen, ("t", 0), batch(1)) is None, "the log has none before it"
    seen.damaged()
    assert overtakes(seen, ("t", 0), batch(1, epoch=1)) == Code.CORRUPT_MESSAGE
    assert overtakes(seen, ("t", 0), batch(9), newest=(0, 8)) is None


def test_damaged_batch_removes_no_rejection() -> None:
    seen = refused(3)
    seen.damaged()
    assert overtakes(seen, ("t", 0), batch(4)) == Code.NOT_ENOUGH_REPLICAS


def test_another_partition_producer_or_epoch_is_another_matter() -> None:
    seen = refused(3)
    assert not overtakes(seen, ("t", 1), batch(4))
    assert not overtakes(seen, ("u", 0), batch(4))
    assert not overtakes(seen, ("t", 0), batch(4, producer=8))
    assert not overtakes(seen, ("t", 0), batch(4, epoch=1))
    assert not overtakes(seen, ("t", 0), a_batch(1)), "not idempotent"
    assert not overtakes(seen, ("t", 0), b"nothing that is a batch")


def test_log_with_refused_batch_judges_the_next() -> None:
    """The producer wrote elsewhere meanwhile, and this log followed."""
    assert overtakes(refused(3), ("t", 0), batch(50), newest=(0, 49)) is None
    assert overtakes(refused(3), ("t", 0), batch(4), newest=(0, 3)) is None
    assert overtakes(refused(3), ("t", 0), batch(4), newest=(1, 0)) is None


def test_log_without_refused_batch_is_not_asked() -> None:
    """It would say "out of order", and the producer begin another epoch."""
    for newest in ((0, 2), (0, LAST), None):
        assert overtakes(refused(3), ("t", 0), batch(4), newest=newest) == Code.NOT_ENOUGH_REPLICAS
    later = RejectedSequences()
    later.answered("t", 0, batch(0, epoch=1), Code.NOT_ENOUGH_REPLICAS, NOW)
    old = (0, 9)
    assert overtakes(later, ("t", 0), batch(1, epoch=1), newest=old) == Code.NOT_ENOUGH_REPLICAS


def test_rejected_sequence_expires_when_not_retried_in_time() -> None:
    seen = refused(3)
    for _ in range(IN_FLIGHT_MAX):
        assert overtakes(seen, ("t", 0), batch(4), ms=REMEMBERED_MS - 1) is not None
    assert overtakes(seen, ("t", 0), batch(4), ms=REMEMBERED_MS) is None


def test_late_batches_in_flight_do_not_overtake() -> None:
    seen = refused(3)
    for number in range(1, IN_FLIGHT_MAX):
        late_ms = 10 * REMEMBERED_MS
        assert overtakes(seen, ("t", 0), batch(3 + number), ms=late_ms) is not None
    assert overtakes(seen, ("t", 0), batch(4), ms=late_ms) is None, "sent again without the first"


@pytest.mark.parametrize("code", [Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT])
def test_batch_behind_truncated_one_waits_for_it(
    code: Code,
) -> None:
    seen = RejectedSequences()
    for sequence in (3, 4):
        seen.not_committed("t", 0, (7, 0, sequence), code, NOW)
    assert overtakes(seen, ("t", 0), batch(5)) == code
    assert overtakes(seen, ("t", 0), batch(4)) == code
    assert overtakes(seen, ("t", 0), batch(3)) is None
    assert overtakes(seen, ("t", 0), batch(5), newest=(0, 4)) is None, "the log has them"
    seen.answered("t", 0, batch(3), Code.NONE, NOW)
    assert overtakes(seen, ("t", 0), batch(4)) is None


def test_batch_behind_second_lost_one_waits_for_it() -> None:
    """The first was replicated before the leader changed, the second was truncated."""
    seen = RejectedSequences()
    for sequence in (3, 4):
        seen.not_committed("t", 0, (7, 0, sequence), Code.NOT_LEADER_OR_FOLLOWER, NOW)
    first_is_there = (0, 3)
    assert overtakes(seen, ("t", 0), batch(5), newest=first_is_there) == Code.NOT_LEADER_OR_FOLLOWER
    assert overtakes(seen, ("t", 0), batch(4), newest=first_is_there) is None


def test_truncated_batch_of_older_epoch_changes_nothing() -> None:
    seen = RejectedSequences()
    seen.answered("t", 0, batch(0, epoch=1), Code.NOT_ENOUGH_REPLICAS, NOW)
    seen.not_committed("t", 0, (7, 0, 9), Code.NOT_LEADER_OR_FOLLOWER, NOW)
    assert overtakes(seen, ("t", 0), batch(1, epoch=1)) is not None


def test_permanently_refused_batch_blocks_nothing() -> None:
    seen = RejectedSequences()
    seen.not_committed("t", 0, (7, 0, 3), Code.UNKNOWN_SERVER_ERROR, NOW)
    assert not seen


def test_sequences_wrap() -> None:
    assert overtakes(refused(LAST), ("t", 0), batch(0))
    assert not overtakes(refused(0), ("t", 0), batch(LAST))


def test_rejected_sequences_ignore_non_retriable_errors() -> None:
    seen = RejectedSequences()
    for code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.MESSAGE_TOO_LARGE, Code.INVALID_RECORD):
        seen.answered("t", 0, batch(3), code, NOW)
    assert not seen


def full(more: int = 1) -> RejectedSequences:
    """Of which `more` are not remembered."""
    seen = RejectedSequences()
    for index in range(REMEMBERED_MAX + more):
        seen.answered("t", index, batch(0), Code.NOT_ENOUGH_REPLICAS, NOW)
    return seen


def test_batch_behind_unremembered_one_is_rejected() -> None:
    seen = full(200)
    for index in (0, REMEMBERED_MAX - 1, REMEMBERED_MAX, REMEMBERED_MAX + 199):
        assert overtakes(seen, ("t", index), batch(1)) == Code.NOT_ENOUGH_REPLICAS
        assert overtakes(seen, ("t", index), batch(0)) is None, "the first of all"


def test_full_connection_lets_pass_what_follows_its_log() -> None:
    seen = full()
    at = ("u", 0)
    assert overtakes(seen, at, batch(8), newest=(0, 7)) is None
    assert overtakes(seen, at, batch(7), newest=(0, 7)) is None, "a retry"
    assert overtakes(seen, at, batch(0), newest=(0, LAST)) is None
    assert overtakes(seen, at, batch(0, epoch=1), newest=(0, 7)) is None
    assert overtakes(seen, at, batch(9), newest=(0, 7)) == Code.NOT_ENOUGH_REPLICAS


def test_producer_that_its_log_forgot_is_rejected_once() -> None:
    seen = full()
    seen.answered("t", 0, batch(0), Code.NONE, NOW)
    assert overtakes(seen, ("u", 0), batch(8)) == Code.NOT_ENOUGH_REPLICAS
    assert overtakes(seen, ("u", 0), batch(8)) is None, "sent again, it is the first"
    assert overtakes(seen, ("u", 0), batch(9)) == Code.NOT_ENOUGH_REPLICAS


def test_full_connection_remembers_again_once_clients_had_time() -> None:
    seen = full()
    late = NOW + REMEMBERED_MS
    seen.answered("u", 0, batch(3), Code.NOT_ENOUGH_REPLICAS, late)
    assert overtakes(seen, ("u", 0), batch(3), ms=REMEMBERED_MS) is None
    assert overtakes(seen, ("u", 0), batch(4), ms=REMEMBERED_MS) == Code.NOT_ENOUGH_REPLICAS


def test_impossible_topic_name_is_not_remembered() -> None:
    """A client may send names of megabytes, each of which was kept as long as its connection."""
    seen = RejectedSequences()
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    seen.answered("t" * (NAME_LENGTH_MAX + 1), 0, batch(0), code, NOW)
    assert not seen
    seen.answered("t" * NAME_LENGTH_MAX, 0, batch(0), code, NOW)
    assert seen


@pytest.mark.parametrize("known", [False, True])
async def test_batch_does_not_overtake_when_replicas_return(
    controller: Controller, three: Three, broker: Make, known: bool
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    first = batch(0) if known else a_batch(1)
    assert (await client.produce("t", first))[0] == Code.NONE
    one, two = (batch(1), batch(2)) if known else (batch(0), batch(1))
    for follower in three[1:]:
        await kill(follower)
    assert (await client.produce("t", one))[0] == Code.NOT_ENOUGH_REPLICAS
    for number in (1, 2):
        await broker(number).start()
    await until(lambda: len(controller.partition("t").isr) == 3)
    assert (await client.produce("t", two))[0] == Code.NOT_ENOUGH_REPLICAS
    assert await client.produce("t", one) == (Code.NONE, 1)
    assert await client.produce("t", two) == (Code.NONE, 2)


def with_flipped_bit(data: bytes, at: int, bit: int = 64) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= bit
    return bytes(damaged)


@pytest.mark.parametrize("at", [50, 56])
async def test_batch_does_not_overtake_damaged_ones(
    controller: Controller, three: Three, at: int
) -> None:
    """The damage is in the producer id or the sequence, of both."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    for sequence in (0, 1):
        damaged = with_flipped_bit(batch(sequence), at)
        assert (await client.produce("t", damaged))[0] == Code.CORRUPT_MESSAGE
    assert (await client.produce("t", batch(2)))[0] == Code.CORRUPT_MESSAGE
    for sequence in (0, 1, 2):
        assert await client.produce("t", batch(sequence)) == (Code.NONE, sequence)


@pytest.mark.parametrize(
    ("at", "bit", "code"),
    [
        (0, 128, Code.INVALID_RECORD),
        (7, 1, Code.INVALID_RECORD),
        (8, 1, Code.CORRUPT_MESSAGE),
        (16, 2, Code.CORRUPT_MESSAGE),
        (20, 1, Code.CORRUPT_MESSAGE),
        (23, 128, Code.CORRUPT_MESSAGE),
        (57, 128, Code.CORRUPT_MESSAGE),
    ],
    ids=["negative-offset", "offset", "length", "magic", "crc", "last-delta", "count"],
)
async def test_batch_does_not_overtake_one_with_damaged_frame(
    controller: Controller, three: Three, at: int, bit: int, code: Code
) -> None:
    """Damage that no CRC covers, or that is found before the CRC is looked at."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert (await client.produce("t", with_flipped_bit(batch(0), at, bit)))[0] == code
    assert (await client.produce("t", batch(1)))[0] == Code.CORRUPT_MESSAGE
    for sequence in (0, 1):
        assert await client.produce("t", batch(sequence)) == (Code.NONE, sequence)


async def test_batch_does_not_overtake_one_damaged_twice(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    for _ in range(2):
        damaged = with_flipped_bit(batch(0), 70)
        assert (await client.produce("t", damaged))[0] == Code.CORRUPT_MESSAGE
        assert (await client.produce("t", batch(1)))[0] == Code.CORRUPT_MESSAGE
    for sequence in (0, 1):
        assert await client.produce("t", batch(sequence)) == (Code.NONE, sequence)


async def test_batch_does_not_overtake_unchecked_damaged_one(
    controller: Controller, three: Three
) -> None:
    """The broker did not lead yet; the damage is in the producer id."""
    client = await three[0].client()
    damaged = with_flipped_bit(batch(0), 50)
    assert (await client.produce("t", damaged))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    assert (await client.produce("t", batch(1)))[0] == Code.CORRUPT_MESSAGE
    for sequence in (0, 1):
        assert await client.produce("t", batch(sequence)) == (Code.NONE, sequence)


async def test_producer_returning_to_old_connection_continues(
    controller: Controller, three: Three
) -> None:
    """A batch was refused here by a follower, and written to the leader; then this one leads."""
    controller.create("t", (0, 1, 2))
    follower, leader = await three[1].client(), await three[0].client()
    assert (await follower.produce("t", batch(0)))[0] == Code.NOT_LEADER_OR_FOLLOWER
    for sequence in (0, 1):
        assert (await leader.produce("t", batch(sequence)))[0] == Code.NONE
    await kill(three[0])
    await until(lambda: three[1].hosted("t").replica.leader is not None)
    assert await follower.produce("t", batch(2)) == (Code.NONE, 2)


async def test_batch_does_not_overtake_when_topic_appears(
    controller: Controller, three: Three
) -> None:
    client = await three[0].client()
    assert (await client.produce("t", batch(0)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    assert (await client.produce("t", batch(1)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await client.produce("t", batch(0)) == (Code.NONE, 0)
