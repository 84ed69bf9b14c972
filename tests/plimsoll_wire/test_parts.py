"""Between two parts of a long message its reader or writer may give way."""

from __future__ import annotations

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_request
from plimsoll_wire.parts import BETWEEN_PARTS, PART


def names(count: int) -> dict[str, object]:
    topics = [{"name": f"topic-{number}"} for number in range(count)]
    return {"topics": topics, "allow_auto_topic_creation": False}


def test_long_message_gives_way_between_parts() -> None:
    gave_way: list[None] = []
    before = BETWEEN_PARTS.set(lambda: gave_way.append(None))
    try:
        body = encode_request(ApiKey.METADATA, 4, names(3 * PART + 1))
        written = len(gave_way)
        read = decode_request(ApiKey.METADATA, 4, body)
    finally:
        BETWEEN_PARTS.reset(before)
    assert (written, len(gave_way)) == (3, 6)
    assert [one.name for one in read.topics] == [f"topic-{n}" for n in range(3 * PART + 1)]


def test_short_message_is_written_and_read_at_once() -> None:
    gave_way: list[None] = []
    before = BETWEEN_PARTS.set(lambda: gave_way.append(None))
    try:
        decode_request(ApiKey.METADATA, 4, encode_request(ApiKey.METADATA, 4, names(PART)))
    finally:
        BETWEEN_PARTS.reset(before)
    assert not gave_way
