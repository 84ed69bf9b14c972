"""Every private message that one release knows, written and read by it: run with its `PYTHONPATH`.

`write`: one JSON object, kind -> hex.  `read`: takes such an object from stdin and says for each
kind what it was read as, as plain values; or the error.
"""

from __future__ import annotations

import json
import sys
import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_wire import control


def sample(kind: Any) -> Any:
    """Some value of a type, with every field stated."""
    origin, parts = get_origin(kind), get_args(kind)
    if hasattr(kind, "__supertype__"):
        return sample(kind.__supertype__)
    if origin in (Union, types.UnionType):
        return sample(next(part for part in parts if part is not type(None)))
    if origin is Literal:
        return parts[0]
    if origin is tuple:
        return (sample(parts[0]),) if parts[-1] is ... else tuple(sample(part) for part in parts)
    if origin is dict:
        return {sample(parts[0]): sample(parts[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: sample(hint) for name, hint in get_type_hints(kind).items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return {bool: True, int: 7, float: 1.5, str: "s", bytes: b"b", UUID: UUID(int=9)}[kind]


def written() -> dict[str, str]:
    found: dict[str, bytes] = {}
    for kind in get_args(control.BrokerRequest):
        command = control.Command(
            cluster_id=UUID(int=1), controller_epoch=sample(int), request=sample(kind)
        )
        found[f"request {kind.__name__}"] = control.encode_request(1, "b", command)
    found["request FetchMetadata"] = control.encode_request(1, "b", sample(FetchMetadata))
    for kind in get_args(get_type_hints(control.CommandReply)["answer"]):
        reply = control.CommandReply(controller_epoch=sample(int), answer=sample(kind))
        found[f"answer {kind.__name__}"] = control.encode_reply(1, reply)
    update = control.MetadataReply(controller_epoch=sample(int), update=sample(MetadataUpdate))
    found["stream MetadataUpdate"] = control.encode_reply(1, update)
    return {name: frame[4:].hex() for name, frame in found.items()}


def read(name: str, frame: bytes) -> Any:
    direction, _, kind = name.partition(" ")
    try:
        if direction == "request":
            body = control.decode_request(frame).body
            message = body if kind == "FetchMetadata" else body.request  # type: ignore[union-attr]
        elif direction == "answer":
            message = control.decode_command_reply(frame).answer
        else:
            message = control.decode_metadata_reply(frame).update  # type: ignore[assignment]
    except control.MalformedControlMessage as error:
        return str(error)
    return msgspec.to_builtins(message)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        json.dump(written(), sys.stdout)
    else:
        frames = json.load(sys.stdin)
        json.dump({name: read(name, bytes.fromhex(frames[name])) for name in frames}, sys.stdout)
