"""A follower's messages, read by kio, by the leader's codec, and by who knows no newer fields."""

import dataclasses
from uuid import UUID

import pytest

from plimsoll_wire import fetch
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, decode_response, encode_response
from plimsoll_wire.replication import (
    FETCH_VERSION,
    FetchLimits,
    FetchSender,
    FetchSessionKey,
    MalformedReply,
    PartitionFetch,
    decode_fetch,
    encode_fetch,
)

TOPIC = UUID(int=0xABC)
LIMITS = FetchLimits(wait_ms_max=500, bytes_max=1000, partition_bytes_max=100)
SENDER = FetchSender(broker_id=2, broker_epoch=77, controller_epoch=2**33 + 5)
HEADER = 4 + 2 + 2 + 4 + 2 + len("plimsoll-replica") + 1


def a_fetch() -> memoryview:
    asked = [PartitionFetch(3, 5, 100, 4, 7), PartitionFetch(4, 5, 0, None, 0)]
    return memoryview(encode_fetch(9, SENDER, LIMITS, [(TOPIC.bytes, asked)]))


def a_reply(*partitions: fetch.FetchedPartition, controller_epoch: int | None) -> memoryview:
    pieces = fetch.encode_response(
        FETCH_VERSION, [("", TOPIC, partitions)], controller_epoch=controller_epoch
    )
    return memoryview(b"\0\0\0\x09\0" + b"".join(pieces))


def test_followers_fetch_is_kafkas_with_the_controllers_epoch() -> None:
    frame = a_fetch()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    mine = fetch.decode_request(frame[HEADER:], FETCH_VERSION)
    assert (mine.replica_id, mine.replica_epoch) == (2, 77)
    assert mine.controller_epoch == 2**33 + 5
    assert mine.topics[0].partitions[0] == fetch.FetchPartition(3, 5, 100, 4, 7, 100)
    kafkas = decode_request(ApiKey.FETCH, FETCH_VERSION, frame[HEADER:])
    assert (kafkas.replica_state.replica_id, kafkas.replica_state.replica_epoch) == (2, 77)
    assert kafkas.topics[0].partitions[1].last_fetched_epoch == -1


@pytest.mark.parametrize("controller_epoch", [0, 3, 2**40, None])
def test_leaders_reply_carries_the_controllers_epoch(controller_epoch: int | None) -> None:
    good = fetch.FetchedPartition(0, 0, 100, 7, b"records")
    diverging = fetch.FetchedPartition(1, diverging=(3, 40))
    reply = decode_fetch(a_reply(good, diverging, controller_epoch=controller_epoch), 9)
    assert reply.controller_epoch == controller_epoch
    assert [bytes(one.records) for one in reply.partitions] == [b"records", b""]
    assert reply.partitions[1].diverging == (3, 40)


def test_reply_of_older_broker_omits_controllers() -> None:
    body = encode_response(
        ApiKey.FETCH, FETCH_VERSION, {"error_code": 0, "session_id": 0, "responses": []}
    )
    assert decode_fetch(memoryview(b"\0\0\0\x09\0" + body), 9) == (0, [], None, 0)


def test_clients_reply_is_read_by_kio_as_ever() -> None:
    frame = a_reply(fetch.FetchedPartition(0, 6), controller_epoch=12)
    kafkas = decode_response(ApiKey.FETCH, FETCH_VERSION, frame[5:])
    assert kafkas.responses[0].partitions[0].error_code == 6


def test_torn_reply_is_malformed_wherever_it_ends() -> None:
    whole = a_reply(fetch.FetchedPartition(0, 0, 100, 7, b"records"), controller_epoch=2**40)
    for size in range(4, len(whole)):
        with pytest.raises(MalformedReply):
            decode_fetch(whole[:size], 9)


@pytest.mark.parametrize("named", [0, 1])
def test_followers_usual_fetch_is_read_as_any_other(named: int) -> None:
    asked = [PartitionFetch(3, 5, 100, None, 7)][:named]
    topics = [(TOPIC.bytes, asked)][:named]
    frame = memoryview(encode_fetch(9, SENDER, LIMITS, topics, FetchSessionKey(4, 6)))
    usual = fetch.decode_request(frame[HEADER:], FETCH_VERSION)
    # A byte more behind its end, and it is read field by field.
    assert usual == fetch.decode_request(memoryview(bytes(frame[HEADER:]) + b"\0"), FETCH_VERSION)


def test_follower_fetch_with_changed_byte_reads_alike() -> None:
    frame = encode_fetch(9, SENDER, LIMITS, [(TOPIC.bytes, [PartitionFetch(3, 5, 100, 4, 7)])])
    body = frame[HEADER:]
    for at in range(len(body)):
        for flip in (1, 2, 0x80):
            other = bytearray(body)
            other[at] ^= flip
            if fetch._followers(memoryview(other)) is not None:
                usual = fetch.decode_request(memoryview(other), FETCH_VERSION)
                other += b"\0"
                assert usual == fetch.decode_request(memoryview(other), FETCH_VERSION)


def test_leaders_usual_reply_is_read_as_any_other() -> None:
    good = fetch.FetchedPartition(0, 0, 100, 7, b"records")
    whole = a_reply(good, controller_epoch=2**40)
    usual = decode_fetch(whole, 9)
    # With another partition beside it, it is read field by field.
    both = decode_fetch(a_reply(good, fetch.FetchedPartition(1), controller_epoch=2**40), 9)
    assert usual.partitions[0] == both.partitions[0]
    assert (usual.controller_epoch, usual.code) == (both.controller_epoch, both.code)
    assert len(usual.partitions) == 1


@pytest.mark.parametrize("size", [1, 126, 127, 128, 20_000])
def test_leaders_usual_reply_is_written_as_any_other(size: int) -> None:
    one = fetch.FetchedPartition(3, 0, 100, 7, bytes(size))
    arguments = {"controller_epoch": 2**40, "session_id": 8}
    usual = fetch.encode_response(FETCH_VERSION, [("", TOPIC, [one])], **arguments)
    # An error or a leader that is told makes no difference to the bytes of what is the same.
    beside = fetch.FetchedPartition(4, 0, 100, 7)
    both = b"".join(fetch.encode_response(FETCH_VERSION, [("", TOPIC, [one, beside])], **arguments))
    kafkas = decode_response(ApiKey.FETCH, FETCH_VERSION, b"".join(usual))
    assert kafkas.responses[0].partitions[0].records == bytes(size)
    assert kafkas == _without_the_second(decode_response(ApiKey.FETCH, FETCH_VERSION, both))
    assert usual[1] is one.records, "records are never copied"


def _without_the_second(reply):
    (topic,) = reply.responses
    topic = dataclasses.replace(topic, partitions=topic.partitions[:1])
    return dataclasses.replace(reply, responses=(topic,))


@pytest.mark.parametrize("last_epoch", [None, 4])
def test_follower_fetch_is_written_as_kafka_reads(last_epoch: int | None) -> None:
    asked = PartitionFetch(3, 5, 100, last_epoch, 7)
    session = FetchSessionKey(4, 6)
    one = encode_fetch(9, SENDER, LIMITS, [(TOPIC.bytes, [asked])], session)
    both = encode_fetch(9, SENDER, LIMITS, [(TOPIC.bytes, [asked, asked])], session)
    assert int.from_bytes(one[:4], "big") == len(one) - 4
    kafkas = decode_request(ApiKey.FETCH, FETCH_VERSION, one[HEADER:])
    other = decode_request(ApiKey.FETCH, FETCH_VERSION, both[HEADER:])
    (topic,) = other.topics
    topic = dataclasses.replace(topic, partitions=topic.partitions[:1])
    assert kafkas == dataclasses.replace(other, topics=(topic,))
    assert (
        fetch.decode_request(memoryview(one)[HEADER:], FETCH_VERSION).controller_epoch == 2**33 + 5
    )
