"""The base of all messages between a broker or an operator and the controller."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Named by its type, so that a union of them can be read back."""
