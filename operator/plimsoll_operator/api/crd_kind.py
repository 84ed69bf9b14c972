"""The parts of a CRD besides its schemas, and the rules and columns that several CRDs share."""

from __future__ import annotations

from dataclasses import dataclass

Rule = tuple[str, str]
Column = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One CRD. `columns`: (name, type, JSON path); `rules`: (CEL, sentence), about `spec`;
    `object_rules`: about the whole object; `wide`: columns that only `-o wide` shows."""

    name: str
    plural: str
    short: str
    spec: type
    status: type
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]
    description: str
    object_rules: tuple[Rule, ...] = ()
    scale: dict[str, str] | None = None
    selectable: tuple[str, ...] = ()
    wide: frozenset[str] = frozenset()


def within_factor(at: str) -> str:
    """Return CEL that is true if min ISR and replication factor at `at` fit together."""
    return (
        f"!has({at}.minInSyncReplicas) || !has({at}.replicationFactor) || "
        f"{at}.minInSyncReplicas <= {at}.replicationFactor"
    )


def same(field: str) -> str:
    """Return CEL that is true if `field` of the spec is unchanged, absent included."""
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


READY = ".status.conditions[?(@.type=='Ready')]"
READY_COLUMNS: tuple[Column, ...] = (
    ("Ready", "string", f"{READY}.status"),
    ("Reason", "string", f"{READY}.reason"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
