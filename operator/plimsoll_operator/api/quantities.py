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
    """Parse a quantity: `512Mi` is 536870912. The schema has checked the form."""
    if isinstance(quantity, int):
        return Decimal(quantity)
    digits = quantity.rstrip("mkKMGTPEi")
    suffix = quantity[len(digits) :]
    return Decimal(digits) * (_SUFFIXES[suffix] if suffix else 1)


def bytes_per_second(quantity: str | int) -> int:
    """Parse a rate, at least 1: `100m` is a quantity too."""
    return max(1, int(amount(quantity)))


def binary(count: int) -> str:
    """Format bytes for people in three or four digits: 9663676416 is `9Gi`, 1258291200 `1200Mi`."""
    for power, letter in reversed(list(enumerate("KMGTPE", 1))):
        unit = 2 ** (10 * power)
        if count >= 10 * unit or (count >= unit and count % unit == 0):
            return f"{round(count / unit)}{letter}i"
    return str(count)
