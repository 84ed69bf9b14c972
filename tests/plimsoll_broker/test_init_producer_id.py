"""InitProducerId with a transactional id: when its coordinator decides."""

from types import SimpleNamespace
from typing import Any

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.handlers.producers import InitProducerIdHandler, ProducerIds
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.ids import BrokerEpoch, BrokerId, BrokerLifetime, ProducerLife
from plimsoll_core.transactions.operations import InitProducer, ProducerInitialized
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

VERSION = 4
VALUES = {
    "transactional_id": "till",
    "transaction_timeout": 1_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


async def test_transactional_id_is_decided_in_the_call() -> None:
    """Later requests of the connection are decided after it."""
    asked: list[InitProducer] = []

    def ask(name: str, op: InitProducer) -> Asker:
        asked.append(op)
        asker = Asker()
        asker.answer(ProducerInitialized(ProducerLife(7, 2)))
        return asker

    served: Any = SimpleNamespace(now=True, coordinators=SimpleNamespace(ask=ask))
    controller: Any = SimpleNamespace()
    ids = ProducerIds(controller, BrokerLifetime(BrokerId(1), BrokerEpoch(1)))
    key = ApiKey.INIT_PRODUCER_ID
    body = memoryview(bytearray(encode_request(key, VERSION, VALUES)))
    reply: Any = InitProducerIdHandler(ids, served)(RequestContext(key, VERSION, 1, body))
    assert [op.transactional_id for op in asked] == ["till"]
    told = decode_response(key, VERSION, await reply)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (0, 7, 2)
