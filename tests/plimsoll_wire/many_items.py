"""Requests with as many items as fit, each the cheapest of its kind: built from Kafka's schemas."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.encoding import FIXED, shape
from plimsoll_wire.messages import encode_request

Path = tuple[str, ...]
"""The fields that lead to an array."""

OWN_DECODERS = (ApiKey.PRODUCE, ApiKey.FETCH)


def arrays_of(entity: type) -> Iterator[Path]:
    """Each array of a message."""
    for field in dataclasses.fields(entity):
        inner, _, is_array = shape(field.type)
        kind = shape(inner)[0] if is_array else inner
        if "tag" in field.metadata:
            continue
        if is_array:
            yield (field.name,)
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            yield from ((field.name, *rest) for rest in arrays_of(kind))


def requests() -> list[tuple[ApiKey, int, Path]]:
    """Each array of each served request, with its key and version."""
    return [
        (key, version, path)
        for key, versions in sorted(SUPPORTED.items())
        if key not in OWN_DECODERS
        for version in range(versions.first, versions.last + 1)
        for path in arrays_of(load_request_schema(key, version))
    ]


def request_of(key: ApiKey, version: int, path: Path, count: int) -> bytes:
    """The body of a request with so many items in the array at `path`, and one in each array around
    it."""
    entity = load_request_schema(key, version)
    return encode_request(key, version, _values(entity, path, count, itertools.count(1_000)))


def _values(entity: type, path: Path, count: int, numbers: Iterator[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            continue
        inner, nullable, is_array = shape(field.type)
        kind = shape(inner)[0] if is_array else inner
        on_path = path[:1] == (field.name,)
        rest = path[1:] if on_path else ()
        times = 1 if not is_array else 0 if not on_path else 1 if rest else count
        values: list[Any] = []
        for _ in range(times):
            if not dataclasses.is_dataclass(kind):
                values.append(_cheapest(field.metadata["kafka_type"], next(numbers)))
            elif nullable and not on_path:
                values.append(None)
            else:
                assert isinstance(kind, type)
                values.append(_values(kind, rest, count, numbers))
        found[field.name] = values if is_array else values[0]
    return found


def _cheapest(kafka_type: str, number: int) -> Any:
    """A short value, unlike the others: a handler may skip what is named twice."""
    match kafka_type:
        case "string":
            return f"{number:x}"
        case "bytes" | "records":
            return b"ab"
        case "uuid":
            return UUID(int=number)
        case "bool":
            return False
    return 2 if FIXED[kafka_type] == ">b" else number % 2**15
