"""The prefix of names that objects of another namespace may use: a text with `{namespace}` in it.

It continues with a character that no namespace's name has, so that no namespace's prefix begins
with another's: with `{namespace}-` the namespace `shop` would own the names of `shop-eu`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

NAMESPACE = "{namespace}"
PREFIX_DEFAULT = f"{NAMESPACE}."

NamePrefix = Annotated[
    str, Meta(max_length=100, pattern=r"^[A-Za-z0-9._-]*\{namespace\}[._][A-Za-z0-9._-]*$")
]


def prefix_of(stated: str | None, namespace: str) -> str:
    """Return the prefix of a namespace's names."""
    return (stated or PREFIX_DEFAULT).replace(NAMESPACE, namespace)
