"""No answer is unencodable because of what it says: sentences repeat what clients named."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from tests.plimsoll_wire.test_codecs import every_message, values_of

from plimsoll_wire import produce
from plimsoll_wire.encoding import shape
from plimsoll_wire.messages import decode_response, encode_response
from plimsoll_wire.primitives import MESSAGE_CHARS_MAX

LONG = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=40), st.just(2_000))


def with_message(entity, values, message):
    """The same values, every sentence of them replaced; how many there were."""
    changed = dict(values)
    count = 0
    for field in dataclasses.fields(entity):
        inner, _, is_array = shape(field.type)
        kind = shape(inner)[0] if is_array else inner
        value = values[field.name]
        if field.name.endswith("_message"):
            changed[field.name] = message
            count += 1
        elif dataclasses.is_dataclass(kind) and value is not None:
            parts = [with_message(kind, one, message) for one in (value if is_array else [value])]
            changed[field.name] = [one for one, _ in parts] if is_array else parts[0][0]
            count += sum(found for _, found in parts)
    return changed, count


def messages_in(value):
    if isinstance(value, tuple):
        return [found for one in value for found in messages_in(one)]
    if not dataclasses.is_dataclass(value):
        return []
    return [
        found
        for field in dataclasses.fields(value)
        for found in (
            [getattr(value, field.name)]
            if field.name.endswith("_message")
            else messages_in(getattr(value, field.name))
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), every_message())
def test_any_response_encodes_with_long_messages(key, version):
    schema = load_response_schema(key, version)

    @given(values=values_of(schema), message=LONG)
    @settings(max_examples=5)
    def check(values, message):
        values, count = with_message(schema, values, message)
        told = messages_in(decode_response(key, version, encode_response(key, version, values)))
        assert len(told) == count
        for one in told:
            assert len(one) <= MESSAGE_CHARS_MAX
            assert one.removesuffix("...") == message[: len(one.removesuffix("..."))]

    check()


@given(message=LONG)
@settings(max_examples=20)
def test_handwritten_produce_reply_bounds_its_messages(message):
    results = [("orders", [produce.ProducedPartition(0, 87, message=message)])]
    for version in range(8, 11):
        body = produce.encode_response(version, results)
        (told,) = messages_in(decode_response(0, version, body).responses[0].partition_responses)[
            -1:
        ]
        assert len(told) <= MESSAGE_CHARS_MAX


def test_message_that_fits_is_left_as_it_is():
    values = {"error_code": 0, "error_message": "x" * MESSAGE_CHARS_MAX, "cluster_id": "c"}
    values |= {"controller_id": 1, "brokers": [], "cluster_authorized_operations": 0}
    told = decode_response(60, 0, encode_response(60, 0, values)).error_message
    assert told == "x" * MESSAGE_CHARS_MAX
