"""The frames of the tail stream, and what a leader that does not know it makes of a fetch."""

from uuid import UUID

import pytest

from plimsoll_wire import fetch
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import Batches
from plimsoll_wire.messages import decode_request
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.replication import (
    FETCH_VERSION,
    FetchLimits,
    FetchSender,
    FetchSessionKey,
    MalformedReply,
    PartitionFetch,
    encode_fetch,
)
from plimsoll_wire.tail_stream import (
    ACKNOWLEDGE,
    Acknowledgement,
    PushedTo,
    decode_acknowledgement,
    decode_push,
    encode_acknowledgement,
    encode_push,
    is_acknowledgement,
    is_push,
)

TOPIC = UUID(int=0xABC).bytes
TO = PushedTo(7, 3, TOPIC, 12)
HEADER = 4 + 2 + 2 + 4 + 2 + len("plimsoll-replica") + 1


def a_push(records: bytes | Batches = b"records") -> memoryview:
    return memoryview(b"".join(encode_push(TO, 5, 100, 98, 40, records)))


@pytest.mark.parametrize("records", [b"records", Batches([b"rec", b"ords"])])
def test_push_is_read_as_it_was_written(records: bytes | Batches) -> None:
    frame = a_push(records)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    push = decode_push(frame)
    assert push[:4] == (7, 3, 5, 100)
    assert push.reply[:6] == (TOPIC, 12, 0, 98, 40, None)
    assert bytes(push.reply.records) == b"records"


@pytest.mark.parametrize("size", [8, 40, 63, 64])
def test_push_without_records_is_malformed(size: int) -> None:
    with pytest.raises(MalformedReply):
        decode_push(a_push()[:size])


def test_push_is_told_from_every_reply() -> None:
    assert is_push(a_push()[4:])
    assert not any(is_push(memoryview(n.to_bytes(4, "big"))) for n in (0, 1, 2**31 - 1))


@pytest.mark.parametrize("last_epoch", [None, 0, 4])
@pytest.mark.parametrize("asks", [False, True])
def test_acknowledgement_is_read_as_it_was_written(last_epoch: int | None, asks: bool) -> None:
    said = Acknowledgement(7, 3, asks, 5, 2**40, last_epoch, 40)
    frame = encode_acknowledgement(said)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert is_acknowledgement(frame[4:])
    assert decode_acknowledgement(frame[4:]) == said


@pytest.mark.parametrize("frame", [b"", b"\3\xeb\0\0", bytes(100)])
def test_acknowledgement_of_another_size_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_acknowledgement(frame)


def test_acknowledgement_has_no_key_of_kafka() -> None:
    assert ACKNOWLEDGE not in {int(key) for key in ApiKey}


@pytest.mark.parametrize("named", [0, 1, 2])
def test_fetch_says_that_pushes_are_taken(named: int) -> None:
    sender = FetchSender(broker_id=2, broker_epoch=77, controller_epoch=2**33 + 5)
    asked = [PartitionFetch(index, 5, 100, 4, 7) for index in range(named)]
    topics = [(TOPIC, asked)] if named else []
    for takes in (True, False):
        limits = FetchLimits(500, 1000, 100, takes_pushes=takes)
        frame = memoryview(encode_fetch(9, sender, limits, topics, FetchSessionKey(4, 6)))
        request = fetch.decode_request(frame[HEADER:], FETCH_VERSION)
        assert request.takes_pushes is takes
        assert request.controller_epoch == 2**33 + 5
        kafkas = decode_request(ApiKey.FETCH, FETCH_VERSION, frame[HEADER:])
        assert kafkas.replica_state.replica_epoch == 77, "who does not know the field skips it"
