"""Batches as bytes: canonical, sealed, and split only where they must be."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_operator.metalog.writer import a_chain, marked, new_nonce

from plimsoll_core.cluster.records import MembersChanged, QuotasSet
from plimsoll_core.quotas.state import QuotaEntity, QuotaRow, QuotaValues
from plimsoll_operator.metalog import codec
from plimsoll_operator.metalog.interface import EMPTY_TIP, AppendRefused, LogCorrupt, UnknownRecord

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(texts, st.lists(st.integers(0, 2**31), max_size=5))
def test_batch_survives_storage_that_writes_its_json_anew(
    cause: str, broker_ids: list[int]
) -> None:
    record = MembersChanged(cause=cause, broker_ids=tuple(broker_ids))  # type: ignore[arg-type]
    batch = codec.pack([record], EMPTY_TIP, 1, new_nonce)[0]
    stored = codec.encode_batch(batch)
    for ascii_only in (True, False):
        shuffled = dict(reversed(json.loads(stored).items()))
        anew = json.dumps(shuffled, ensure_ascii=ascii_only, indent=2).encode()
        assert codec.decode_batch(anew) == batch
    assert codec.decode_records(batch) == (record,)


@pytest.mark.parametrize("field", sorted(json.loads(codec.encode_batch(a_chain(1, 1)[1]))))
def test_change_of_any_deciding_field_is_detected(field: str) -> None:
    stored = json.loads(codec.encode_batch(a_chain(1, 1)[1]))
    changed: Any = {
        str: lambda value: value + "x",
        int: lambda value: value + 1,
        list: lambda value: [*value, value[0]],
    }[type(stored[field])](stored[field])
    with pytest.raises(LogCorrupt):
        codec.decode_batch(json.dumps({**stored, field: changed}).encode())


def test_fields_of_newer_version_are_sealed_and_refused() -> None:
    batch = a_chain(1)[0]
    newer = codec.sealed(
        batch, codec.canonical(batch.records_json.replace(b'"cause"', b'"added":7,"cause"'))
    )
    assert codec.decode_batch(codec.encode_batch(newer)) == newer
    assert b'"added":7' in newer.records_json
    with pytest.raises(UnknownRecord, match="added"):
        codec.decode_records(newer)


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"null", b'{"sequence": -1}', b"\xff\xfe"])
def test_garbage_is_not_a_batch(garbage: bytes) -> None:
    with pytest.raises(LogCorrupt):
        codec.decode_batch(garbage)


def test_decision_too_large_for_batch_is_grouped() -> None:
    records = [marked(f"{number} ", padding=100_000) for number in range(20)]
    batches = codec.pack(records, EMPTY_TIP, 1, new_nonce)
    assert [len(batch.records_json) <= codec.BATCH_BYTES_MAX for batch in batches] == [True] * 3
    assert len({batch.group for batch in batches}) == 1
    assert batches[0].group is not None
    assert [batch.last_of_group for batch in batches] == [False, False, True]
    assert [batch.base_offset for batch in batches] == [0, 8, 16]
    assert [record for batch in batches for record in codec.decode_records(batch)] == records
    assert all(batch.checksum == codec.checksum(batch) for batch in batches)


def test_record_too_large_for_batches_is_refused() -> None:
    record = marked("x", padding=codec.BATCH_BYTES_MAX)
    assert "MembersChanged record has" in str(codec.record_too_large([record]))
    with pytest.raises(AppendRefused, match="does not fit into a metadata batch"):
        codec.pack([marked("fits"), record], EMPTY_TIP, 1, new_nonce)


def a_quota(**values: float) -> QuotasSet:
    return QuotasSet(
        cause="t", row=QuotaRow(entity=QuotaEntity(user=""), values=QuotaValues(**values))
    )


def as_an_api_server_keeps(stored: bytes) -> bytes:
    """Go reads a number without a fraction as an int64 where it is one, as a float64 otherwise, and
    writes a float64 without an exponent below 1e21."""

    def whole(text: str) -> float | int:
        value = float(text)
        return int(value) if value.is_integer() and abs(value) < 1e21 else value

    return json.dumps(json.loads(stored, parse_float=whole)).encode()


@pytest.mark.parametrize(
    "value", [5.0, 0.5, 1e-7, 0.1 + 0.2, 2.0**53 + 2, 1e18, 2.0**63, 1e20, 1e300]
)
def test_float_is_sealed_as_storage_rewrites_it(value: float) -> None:
    record = a_quota(controller_mutation_rate=value)
    for batch in codec.pack([record], EMPTY_TIP, 1, new_nonce):
        stored = codec.encode_batch(batch)
        for kept in (stored, as_an_api_server_keeps(stored)):
            assert codec.decode_batch(kept) == batch
        assert codec.decode_records(batch) == (record,)


def test_float_in_group_is_sealed_alike() -> None:
    records = [a_quota(request_percentage=50.0), marked("x", padding=codec.BATCH_BYTES_MAX - 400)]
    batches = codec.pack([*records, *records], EMPTY_TIP, 1, new_nonce)
    assert len(batches) > 1
    for batch in batches:
        assert codec.decode_batch(as_an_api_server_keeps(codec.encode_batch(batch))) == batch


@pytest.mark.parametrize("kept", [bytes, as_an_api_server_keeps])
def test_whole_float_of_earlier_build_is_readable(
    kept: Callable[[bytes], bytes],
) -> None:
    batch = codec.pack([a_quota(request_percentage=50.0), marked("x")], EMPTY_TIP, 1, new_nonce)[0]
    before = codec.sealed(batch, batch.records_json.replace(b":50}", b":50.0}"))
    assert before != batch
    assert codec.decode_batch(kept(codec.encode_batch(before))) == before


def test_number_that_nothing_holds_is_corruption() -> None:
    raw = codec.encode_batch(
        codec.pack([a_quota(request_percentage=5.0)], EMPTY_TIP, 1, new_nonce)[0]
    )
    with pytest.raises(LogCorrupt):
        codec.decode_batch(raw.replace(b":5}", b":" + b"9" * 400 + b"}"))


def test_checksum_is_bound_to_log_position() -> None:
    batch = a_chain(1)[0]
    assert codec.checksum(replace(batch, sequence=7)) != batch.checksum
    assert codec.checksum(replace(batch, previous_nonce="other")) != batch.checksum


def test_time_of_writing_is_stored_beside_the_checksum() -> None:
    """People read it, nothing is decided by it: a release that does not know it reads the batch."""
    record = MembersChanged(cause="x", broker_ids=())
    batch = codec.pack([record], EMPTY_TIP, 1, new_nonce, 1_700_000_000_000)[0]
    stored = codec.encode_batch(batch)
    assert codec.decode_batch(stored).written_ms == 1_700_000_000_000
    without = json.loads(stored)
    del without["writtenMs"]
    assert codec.decode_batch(json.dumps(without).encode()) == batch
