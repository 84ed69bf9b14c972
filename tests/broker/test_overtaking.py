"""What is sent behind a refused batch does not begin a producer's log in the middle."""

from tests.broker.test_replication import Make, Three, kill, until
from tests.broker.trio import Controller, a_batch

from plimsoll_broker.overtaking import REMEMBERED_MAX, REMEMBERED_MS, Refused
from plimsoll_core.replica.values import Code

LAST = 2**31 - 1
NOW = 1_000


def batch(sequence: int, epoch: int = 0, producer: int = 7) -> bytes:
    return a_batch(1, producer=(producer, epoch, sequence))


def overtakes(
    seen: Refused, at: tuple[str, int], records: bytes, *, known: tuple[int, ...] = (), ms: int = 0
) -> int | None:
    return seen.overtaken_by(at, records, known, NOW + ms)


def refused(sequence: int) -> Refused:
    found = Refused()
    found.answered(("t", 0), batch(sequence), Code.NOT_ENOUGH_REPLICAS, NOW)
    return found


def test_what_comes_after_a_refused_batch_overtakes_it_until_that_is_taken() -> None:
    seen = refused(3)
    assert overtakes(seen, ("t", 0), batch(4)) == Code.NOT_ENOUGH_REPLICAS
    assert overtakes(seen, ("t", 0), batch(3)) is None
    assert overtakes(seen, ("t", 0), batch(2)) is None
    seen.answered(("t", 0), batch(3), Code.NONE, NOW)
    assert not seen
    assert overtakes(seen, ("t", 0), batch(4)) is None


def test_another_partition_producer_or_epoch_is_another_matter() -> None:
    seen = refused(3)
    assert not overtakes(seen, ("t", 1), batch(4))
    assert not overtakes(seen, ("u", 0), batch(4))
    assert not overtakes(seen, ("t", 0), batch(4, producer=8))
    assert not overtakes(seen, ("t", 0), batch(4, epoch=1))
    assert not overtakes(seen, ("t", 0), a_batch(1)), "not idempotent"
    assert not overtakes(seen, ("t", 0), b"nothing that is a batch")


def test_a_producer_that_the_log_knows_is_left_to_the_log() -> None:
    """It wrote elsewhere meanwhile, and this log followed."""
    assert overtakes(refused(3), ("t", 0), batch(50), known=(7,)) is None
    assert overtakes(refused(3), ("t", 0), batch(50), known=(8,)) is not None


def test_what_was_not_sent_again_for_long_holds_nobody_up() -> None:
    assert overtakes(refused(3), ("t", 0), batch(4), ms=REMEMBERED_MS - 1) is not None
    assert overtakes(refused(3), ("t", 0), batch(4), ms=REMEMBERED_MS) is None


def test_sequences_wrap() -> None:
    assert overtakes(refused(LAST), ("t", 0), batch(0))
    assert not overtakes(refused(0), ("t", 0), batch(LAST))


def test_what_does_not_pass_by_itself_is_not_remembered() -> None:
    seen = Refused()
    for code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.MESSAGE_TOO_LARGE, Code.INVALID_RECORD):
        seen.answered(("t", 0), batch(3), code, NOW)
    assert not seen


def test_a_connection_remembers_no_more_than_so_many() -> None:
    seen = Refused()
    for producer in range(REMEMBERED_MAX + 1):
        seen.answered(("t", 0), batch(0, producer=producer), Code.NOT_ENOUGH_REPLICAS, NOW)
    assert not overtakes(seen, ("t", 0), batch(1, producer=0))
    assert overtakes(seen, ("t", 0), batch(1, producer=1))
    assert overtakes(seen, ("t", 0), batch(1, producer=REMEMBERED_MAX))


async def test_a_producer_does_not_begin_in_the_middle_when_replicas_return_between_two_batches(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    for follower in three[1:]:
        await kill(follower)
    assert (await client.produce("t", batch(0)))[0] == Code.NOT_ENOUGH_REPLICAS
    for number in (1, 2):
        await broker(number).start()
    await until(lambda: len(controller.partition("t").isr) == 3)
    assert (await client.produce("t", batch(1)))[0] == Code.NOT_ENOUGH_REPLICAS
    assert await client.produce("t", batch(0)) == (Code.NONE, 1)
    assert await client.produce("t", batch(1)) == (Code.NONE, 2)


async def test_a_producer_that_wrote_elsewhere_meanwhile_goes_on_over_its_old_connection(
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


async def test_nor_when_a_topic_is_heard_of_between_two_batches(
    controller: Controller, three: Three
) -> None:
    client = await three[0].client()
    assert (await client.produce("t", batch(0)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    assert (await client.produce("t", batch(1)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await client.produce("t", batch(0)) == (Code.NONE, 0)
