"""The base of all messages between a broker or an operator and the controller."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all messages. An encoded message carries its type's name, so that a union can be
    decoded."""
