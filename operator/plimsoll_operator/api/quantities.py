"""Converts Kubernetes' quantities to numbers: pure."""

from __future__ import annotations

from decimal import Decimal

_SUFFIXES = {
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}


def amount(quantity: str | int) -> Decimal:
    """Return the number that a Kubernetes quantity stands for: `512Mi` is 536870912. The schema has
    checked the form."""
    if isinstance(quantity, int):
        return Decimal(quantity)
    digits = quantity.rstrip("mkKMGTPEi")
    suffix = quantity[len(digits) :]
    return Decimal(digits) * (_SUFFIXES[suffix] if suffix else 1)


def bytes_per_second(quantity: str | int) -> int:
    """Parse a quantity as bytes per second. Returns at least 1, since quantities such as `100m`
    (0.1) are valid."""
    return max(1, int(amount(quantity)))


def binary(count: int) -> str:
    """Format a number of bytes for people, rounded to a whole number of a binary unit: 9663676416
    is `9Gi`, 1258291200 is `1200Mi`."""
    for power, letter in reversed(list(enumerate("KMGTPE", 1))):
        unit = 2 ** (10 * power)
        if count >= 10 * unit or (count >= unit and count % unit == 0):
            return f"{round(count / unit)}{letter}i"
    return str(count)
