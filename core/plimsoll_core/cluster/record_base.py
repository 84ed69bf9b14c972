"""The common base of all records.  `records` lists them."""

from __future__ import annotations

import msgspec


class Record(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    cause: str
