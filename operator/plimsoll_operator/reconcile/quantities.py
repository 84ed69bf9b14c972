"""Kubernetes' quantities as numbers: pure."""

from __future__ import annotations

from decimal import Decimal

_SUFFIXES = {
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}


def amount(quantity: str) -> Decimal:
    """`512Mi` is 536870912; the schema has checked the form."""
    digits = quantity.rstrip("mkKMGTPEi")
    suffix = quantity[len(digits) :]
    return Decimal(digits) * (_SUFFIXES[suffix] if suffix else 1)
