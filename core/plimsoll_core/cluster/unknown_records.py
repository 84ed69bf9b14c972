"""Refuses records of a newer release: a reader does not guess at what it does not know.

Called by every reader of the log, a snapshot or the metadata stream.  An operator that meets
`MetadataTooNew` does not lead; a broker applies nothing more.  `record_versions` lists what belongs
to which metadata version.  Source: docs/design/004-metadata-version.md.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.record_versions import NEWEST, OLDEST, release_of
from plimsoll_core.release import RELEASE


class MetadataTooNew(Exception):
    """Raised for a record or a snapshot that a newer release wrote and this one does not
    understand. Its message is a sentence for the user."""


class _Typed(msgspec.Struct, frozen=True):
    type: str = ""


_records = msgspec.json.Decoder(tuple[r.Record, ...])


_types = msgspec.json.Decoder(list[_Typed])


_KNOWN = {kind.__name__ for kind in r.Record.__args__}


def read_records(data: bytes) -> tuple[r.Record, ...]:
    """Decode a batch's records from JSON. Raise MetadataTooNew for an unknown kind, field, value or
    metadata version; nothing is ever skipped."""
    try:
        found = _records.decode(data)
    except msgspec.DecodeError as error:
        raise MetadataTooNew(_why_not(data, error)) from error
    for record in found:
        if isinstance(record, r.MetadataVersionFinalized):
            check_known(record.metadata_version)
    return found


def check_known(metadata_version: int) -> None:
    """Raise MetadataTooNew if this software does not understand the metadata version."""
    if metadata_version > NEWEST:
        raise MetadataTooNew(
            f"metadata version {release_of(metadata_version)} is finalised, and this is release"
            f" {RELEASE}, which understands {release_of(OLDEST)} to {release_of(NEWEST)}"
        )


def _why_not(data: bytes, error: msgspec.DecodeError) -> str:
    try:
        unknown = sorted({item.type for item in _types.decode(data)} - _KNOWN)
    except msgspec.DecodeError:
        unknown = []
    if unknown:
        return f"there are records that release {RELEASE} does not know: " + ", ".join(unknown)
    return f"there are records that release {RELEASE} cannot read: {error}"
