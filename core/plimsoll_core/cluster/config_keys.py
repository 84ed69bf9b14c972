"""The types of configs: each parses the text of a value, or rejects it.

Called by `topic_configs` and `cluster_configs`, which define the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_core.errors import Reason, Refusal

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Parse = Callable[[str], int | str | None]
"""The type of a parser: it takes the text of a config, and returns its value, or None if the text
is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One config key: its name, default (as text), parser and documentation. `wants` describes the
    valid values; it completes the sentence "NAME must be …"."""

    name: str
    default: str
    parse: Parse
    wants: str
    doc: str


def integer(name: str, default: int, least: int, most: int, doc: str) -> ConfigKey:
    def parse(text: str) -> int | None:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            return None
        value = int(text)
        return value if least <= value <= most else None

    wants = f"a whole number from {least} to {most}"
    return ConfigKey(name=name, default=str(default), parse=parse, wants=wants, doc=doc)


def choice(name: str, choices: tuple[str, ...], doc: str, *, any_case: bool = False) -> ConfigKey:
    """Return a config key with a fixed set of values; the first is the default. `any_case`: ignore
    case, and store the value as spelled in `choices`."""
    spelled = {choice.lower() if any_case else choice: choice for choice in choices}

    def parse(text: str) -> str | None:
        return spelled.get(text.lower() if any_case else text)

    wants = " or ".join(choices)
    return ConfigKey(name=name, default=choices[0], parse=parse, wants=wants, doc=doc)


def fixed(name: str, default: str, why: str) -> ConfigKey:
    """Return a config key that Kafka knows and that has no effect here. Only its default is
    accepted."""

    def parse(text: str) -> str | None:
        return default if text.lower() == default else None

    wants = f"{default or 'empty'}: {why}"
    return ConfigKey(name=name, default=default, parse=parse, wants=wants, doc=f"Fixed: {why}.")


def policies(text: str) -> str | None:
    """Return the stored form of a `cleanup.policy`: "delete", "compact", both joined by a comma in
    the order given, or an empty string for no policy. Return None for any other text. The order has
    no effect, but is kept: a tool that compares the stored value with its own would otherwise try
    to change it again and again."""
    if not text.strip():
        return ""
    found = dict.fromkeys(each.strip() for each in text.split(","))
    return ",".join(found) if found.keys() <= {"compact", "delete"} else None


def share(name: str, default: str, doc: str) -> ConfigKey:
    """Return a config key for a number from 0 to 1, both inclusive; its parsed value is the text
    itself. Exponents are accepted: Java prints small numbers with them, and tools that copy a
    topic's configs send such text."""

    def parse(text: str) -> str | None:
        plain = len(text) <= 24 and _DECIMAL.fullmatch(text) is not None
        return text if plain and 0 <= float(text) <= 1 else None

    return ConfigKey(name=name, default=default, parse=parse, wants="from 0 to 1", doc=doc)


def invalid(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidConfig, message=message)
