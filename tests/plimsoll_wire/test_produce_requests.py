"""A produce request is read, and its reply packed, the same, whether it is of the usual shape or
not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_wire import produce
from plimsoll_wire.api_versions import SUPPORTED, ApiKey, is_flexible
from plimsoll_wire.messages import encode_request
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.produce import ProduceRequest, decode_request

VERSIONS = [7, 9]
PARTITIONS = st.lists(
    st.fixed_dictionaries(
        {"index": st.integers(-1, 300), "records": st.none() | st.binary(max_size=300)}
    ),
    max_size=2,
)
REQUESTS = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | st.text(max_size=3),
        "acks": st.sampled_from([-1, 0, 1, 7]),
        "timeout": st.integers(-1, 2**31 - 1),
        "topic_data": st.lists(
            st.fixed_dictionaries({"name": st.text(max_size=200), "partition_data": PARTITIONS}),
            max_size=2,
        ),
    }
)


def read(body: bytes, version: int) -> tuple[ProduceRequest | None, ProduceRequest | None]:
    """By the way for one batch, if there is one, and by the way for all."""
    view, flexible = memoryview(bytearray(body)), is_flexible(ApiKey.PRODUCE, version)
    one = produce._one_batch_flexible(view) if flexible else produce._one_batch(view)
    try:
        return one, produce._decode(view, flexible)
    except MalformedMessage:
        return one, None


@given(REQUESTS, st.sampled_from(VERSIONS))
def test_request_with_one_batch_is_read_alike(values: dict, version: int) -> None:
    try:
        body = encode_request(ApiKey.PRODUCE, version, values)
    except UnicodeEncodeError:
        return
    one, whole = read(body, version)
    assert whole is not None
    assert one in (None, whole)


@given(REQUESTS, st.sampled_from(VERSIONS), st.data())
def test_damaged_request_is_judged_alike_both_ways(
    values: dict, version: int, data: st.DataObject
) -> None:
    try:
        body = bytearray(encode_request(ApiKey.PRODUCE, version, values))
    except UnicodeEncodeError:
        return
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(max(at, len(body) - 3), len(body)))]
    one, whole = read(bytes(body), version)
    assert one in (None, whole)


@pytest.mark.parametrize("version", VERSIONS)
def test_usual_producer_request_takes_the_fast_path(version: int) -> None:
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": b"r" * 200}]}],
    }
    body = encode_request(ApiKey.PRODUCE, version, values)
    one, whole = read(body, version)
    assert one == whole == decode_request(memoryview(bytearray(body)), version)
    assert one is not None
    assert one.topics[0].partitions[0].records == b"r" * 200


@pytest.mark.parametrize("version", range(3, SUPPORTED[ApiKey.PRODUCE].last + 1))
@pytest.mark.parametrize("name", ["orders", "zahlungen-ä", "n" * 126, "n" * 127, "n" * 249])
def test_reply_of_one_partition_is_packed_alike(
    monkeypatch: pytest.MonkeyPatch, version: int, name: str
) -> None:
    results = [(name, [produce.ProducedPartition(3, 6, 1234, 99, 7)])]
    packed = produce.encode_response(version, results, (), 70)
    monkeypatch.setattr(produce, "_of_one_partition", lambda *_: None)
    assert packed == produce.encode_response(version, results, (), 70)
