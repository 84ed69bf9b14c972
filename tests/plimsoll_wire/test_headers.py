"""A request's header ends where its body begins, whatever client id and tagged fields it has."""

from __future__ import annotations

import struct

import pytest

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import parse_request_header
from plimsoll_wire.primitives import MalformedMessage


@pytest.mark.parametrize("client_id", [None, "", "ein Übersetzer"])
@pytest.mark.parametrize("tags", [b"\0", b"\1\5\2ab"])
def test_request_header_ends_after_client_id_and_tags(client_id: str | None, tags: bytes) -> None:
    text = b"" if client_id is None else client_id.encode()
    fixed = struct.pack(">hhih", ApiKey.PRODUCE, 9, 5, -1 if client_id is None else len(text))
    header = parse_request_header(bytearray(fixed + text + tags + b"BODY"))
    assert header == (ApiKey.PRODUCE, 9, 5, client_id, len(fixed + text + tags))


@pytest.mark.parametrize("end", [b"", b"\0", b"\0\x09ab", b"\0\2\xff\xff"])
def test_request_header_with_bad_client_id_is_malformed(end: bytes) -> None:
    with pytest.raises(MalformedMessage):
        parse_request_header(bytearray(struct.pack(">hhi", ApiKey.PRODUCE, 7, 5) + end))


def test_request_header_without_its_tagged_fields_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        parse_request_header(bytearray(struct.pack(">hhih", ApiKey.PRODUCE, 9, 5, 0)))
