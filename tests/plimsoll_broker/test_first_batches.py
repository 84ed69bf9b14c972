"""What a leader keeps of the verification of a transaction's first batch."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll_broker.handlers.batch_checks import BadSent
from plimsoll_broker.handlers.transactions.first_batches import FirstBatches
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.replica.verified_writers import VerifiedWriters
from plimsoll_wire.batches import TRANSACTIONAL, parse_header
from plimsoll_wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from plimsoll_wire.record_sets import KeyValue, write_batch

HERE = TopicPartition("orders", 0)
PRODUCER = ProducerLife(7, 1)
BATCH = parse_header(write_batch([KeyValue(b"k", b"v")], 0))._replace(
    attributes=TRANSACTIONAL, producer_id=7, producer_epoch=1, base_sequence=0
)


class Leader:
    """A partition that is led here, and its coordinator, which answers when it is told to."""

    def __init__(self) -> None:
        self.verified = VerifiedWriters()
        self.answer: asyncio.Future[dict[TopicPartition, Code]] = asyncio.Future()

    async def verify(self, *_: Any) -> dict[TopicPartition, Code]:
        return await self.answer

    def request(self) -> tuple[asyncio.Task[None], dict[tuple[int, int], Any]]:
        """A produce request in progress, and the results of its checks."""
        replica = SimpleNamespace(leader=self, check_verified=self._check)
        manager: Any = SimpleNamespace(by_name=lambda *_: SimpleNamespace(replica=replica))
        served: Any = SimpleNamespace(now=True, verifier=self)
        batches = [ProduceTopic("orders", [ProducePartition(0, None)])]
        checked: dict[tuple[int, int], Any] = {(0, 0): BATCH}
        first = FirstBatches(manager, served)
        request = ProduceRequest("till", -1, 1_000, batches)
        return asyncio.ensure_future(first.verify(request, (), checked)), checked

    def _check(self, producer: ProducerLife) -> Code:
        admitted = self.verified.admits(producer)
        return Code.NONE if admitted else Code.NOT_ENOUGH_REPLICAS

    @property
    def kept(self) -> int:
        return len(self.verified)


@pytest.mark.parametrize("code", [Code.NONE, Code.INVALID_TXN_STATE])
async def test_answer_admits_or_refuses_batch(code: Code) -> None:
    leader = Leader()
    task, checked = leader.request()
    await asyncio.sleep(0)
    leader.answer.set_result({HERE: code})
    await task
    assert leader.verified.admits(PRODUCER) is (code is Code.NONE)
    assert isinstance(checked[0, 0], BadSent) is (code is not Code.NONE)


async def test_cancelled_verification_leaves_nothing() -> None:
    leader = Leader()
    task, _ = leader.request()
    await asyncio.sleep(0)
    assert leader.kept == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leader.kept == 0, "any client may name any number of producer ids"
