"""How the names begin that objects of another namespace may use: a text with `{namespace}` in it.

A character that no namespace's name has follows it, so that the prefix of one namespace is never
the beginning of another's: with `{namespace}-` the namespace `shop` would own what `shop-eu` has.
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
    """The beginning of a namespace's names."""
    return (stated or PREFIX_DEFAULT).replace(NAMESPACE, namespace)
