"""What is sent behind a refused batch does not begin a producer's log in the middle."""

from tests.broker.test_replication import Make, Three, kill, until
from tests.broker.trio import Controller, a_batch

from plimsoll_broker.overtaking import REMEMBERED_MAX, Refused
from plimsoll_core.replica.values import Code

LAST = 2**31 - 1


def batch(sequence: int, epoch: int = 0, producer: int = 7) -> bytes:
    return a_batch(1, producer=(producer, epoch, sequence))


def refused(sequence: int) -> Refused:
    found = Refused()
    found.answered("t", 0, batch(sequence), Code.NOT_ENOUGH_REPLICAS)
    return found


def test_what_comes_after_a_refused_batch_overtakes_it_until_that_is_taken() -> None:
    seen = refused(3)
    assert seen.overtaken_by("t", 0, batch(4))
    assert not seen.overtaken_by("t", 0, batch(3))
    assert not seen.overtaken_by("t", 0, batch(2))
    seen.answered("t", 0, batch(3), Code.NONE)
    assert not seen
    assert not seen.overtaken_by("t", 0, batch(4))


def test_another_partition_producer_or_epoch_is_another_matter() -> None:
    seen = refused(3)
    assert not seen.overtaken_by("t", 1, batch(4))
    assert not seen.overtaken_by("u", 0, batch(4))
    assert not seen.overtaken_by("t", 0, batch(4, producer=8))
    assert not seen.overtaken_by("t", 0, batch(4, epoch=1))
    assert not seen.overtaken_by("t", 0, a_batch(1)), "not idempotent"
    assert not seen.overtaken_by("t", 0, b"nothing that is a batch")


def test_sequences_wrap() -> None:
    assert refused(LAST).overtaken_by("t", 0, batch(0))
    assert not refused(0).overtaken_by("t", 0, batch(LAST))


def test_what_the_log_says_of_sequences_is_not_remembered() -> None:
    seen = Refused()
    for code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH):
        seen.answered("t", 0, batch(3), code)
    assert not seen


def test_a_connection_remembers_no_more_than_so_many() -> None:
    seen = Refused()
    for producer in range(REMEMBERED_MAX + 1):
        seen.answered("t", 0, batch(0, producer=producer), Code.NOT_ENOUGH_REPLICAS)
    assert not seen.overtaken_by("t", 0, batch(1, producer=0))
    assert seen.overtaken_by("t", 0, batch(1, producer=1))
    assert seen.overtaken_by("t", 0, batch(1, producer=REMEMBERED_MAX))


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
    assert (await client.produce("t", batch(1)))[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await client.produce("t", batch(0)) == (Code.NONE, 1)
    assert await client.produce("t", batch(1)) == (Code.NONE, 2)


async def test_nor_when_a_topic_is_heard_of_between_two_batches(
    controller: Controller, three: Three
) -> None:
    client = await three[0].client()
    assert (await client.produce("t", batch(0)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    assert (await client.produce("t", batch(1)))[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await client.produce("t", batch(0)) == (Code.NONE, 0)
