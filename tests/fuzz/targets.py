"""What any bytes may be given to, and the only exceptions that may come of it.

Each target takes bytes and raises nothing but what its callers expect of a stranger's bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from plimsoll_broker.security.token_signatures import verified
from plimsoll_core.security.tokens import (
    Bearer,
    TokenIssuer,
    TokenKey,
    TokenRefusal,
    bearer_of,
    judge,
)
from plimsoll_wire import control, fetch, produce
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.batches import BatchError, check_crc, parse_header, whole_batches
from plimsoll_wire.framing import Framer, FrameTooLarge
from plimsoll_wire.headers import parse_request_header
from plimsoll_wire.messages import decode_request
from plimsoll_wire.primitives import MalformedMessage

LIMIT = 2**20
ISSUER = TokenIssuer(
    name="i",
    login="OAuth",
    issuer="i",
    audiences=("a",),
    keys=(TokenKey(key_id="k", algorithm="ES256", public_key=b"none"),),
)


def framing(data: bytes) -> None:
    """Cut as the first byte says; what comes out does not depend on it."""
    if not data:
        return
    step, stream = data[0] + 1, data[1:]
    assert _frames(stream, step) == _frames(stream, len(stream) or 1)


def _frames(stream: bytes, step: int) -> list[bytes] | None:
    framer, found = Framer(LIMIT), []
    try:
        for start in range(0, len(stream), step):
            framer.receive(stream[start : start + step])
            while (frame := framer.next_frame()) is not None:
                found.append(bytes(frame))
    except FrameTooLarge:
        return None
    return found


def requests(data: bytes) -> None:
    """The first two bytes choose the API and the version."""
    if len(data) < 2:
        return
    keys = sorted(SUPPORTED)
    key = keys[data[0] % len(keys)]
    versions = SUPPORTED[key]
    version = versions.first + data[1] % (versions.last - versions.first + 1)
    body = memoryview(bytearray(data[2:]))
    with contextlib.suppress(MalformedMessage):
        match key:
            case ApiKey.PRODUCE:
                produce.decode_request(body, version)
            case ApiKey.FETCH:
                fetch.decode_request(body, version)
            case _:
                decode_request(key, version, body)


def headers(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        parse_request_header(bytearray(data))


def control_messages(data: bytes) -> None:
    with contextlib.suppress(control.MalformedControlMessage):
        control.decode_request(data)


def batches(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        header = parse_header(data)
        check_crc(data, 0, header.length)
    with contextlib.suppress(BatchError):
        whole_batches(data, 2**63 - 1, LIMIT)


def tokens(data: bytes) -> None:
    """A login's first message; and what an issuer has signed, whatever that is."""
    found = bearer_of(b"n,,\x01auth=Bearer " + data + b"\x01\x01")
    if isinstance(found, Bearer):
        assert isinstance(verified(found, (ISSUER,), 0), TokenRefusal), "nobody signed this"
    assert isinstance(judge(data, ISSUER, ISSUER.keys[0], "", 0), TokenRefusal)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "framing": framing,
    "headers": headers,
    "requests": requests,
    "control_messages": control_messages,
    "batches": batches,
    "tokens": tokens,
}
