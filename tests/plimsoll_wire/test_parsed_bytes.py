"""What a parsed request takes is counted, of every API that may name many items."""

import tracemalloc

import pytest
from tests.plimsoll_wire.many_items import Path, request_of, requests

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_and_count, request_density

COUNT = 300


@pytest.mark.parametrize(("key", "version", "path"), requests())
def test_parsed_items_take_no_more_than_is_counted(key: ApiKey, version: int, path: Path) -> None:
    body = request_of(key, version, path, COUNT)
    decode_and_count(key, version, body)  # compiles the decoder
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        parsed, counted, _ = decode_and_count(key, version, body)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert parsed is not None
    assert held <= counted + len(body) + 2_000
    assert counted <= request_density(key, version).per_byte * len(body)
