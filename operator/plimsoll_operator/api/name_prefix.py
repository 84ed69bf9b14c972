"""The prefix that Kafka names of another namespace's objects must have: a text with `{namespace}`
in it.

After `{namespace}` comes a character that no namespace's name contains, so that no namespace's
prefix begins with another's. With `{namespace}-`, the namespace `shop` would own the names of
`shop-eu`.
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
    """Return the prefix of the names that `namespace` may use: the template `stated` (None: the
    default, `{namespace}.`) with the namespace filled in."""
    return (stated or PREFIX_DEFAULT).replace(NAMESPACE, namespace)
