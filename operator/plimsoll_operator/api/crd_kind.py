"""What one CRD says besides its schemas, and the rules and columns that several of them share."""

from __future__ import annotations

from dataclasses import dataclass

Rule = tuple[str, str]
Column = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One CRD: `columns` are (name, type, JSON path); `rules` are (CEL, sentence), about `spec`;
    `object_rules` look at the whole object; `wide` columns are shown with `-o wide` alone."""

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
    """CEL: what is stated of min ISR and replication factor at `at` fits together."""
    return (
        f"!has({at}.minInSyncReplicas) || !has({at}.replicationFactor) || "
        f"{at}.minInSyncReplicas <= {at}.replicationFactor"
    )


def same(field: str) -> str:
    """CEL: `field` of the spec is what it was, absent included."""
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
