"""Decides by ACLs as Kafka does, at a cost that does not depend on their number.

Made beside an image and changed by the ACLs that a record adds or removes. A decision looks at the
cells of the principal and of User:*: two literal names, and one prefix for each length that a
prefix has. It answers for all operations on a resource at once. Source: `StandardAuthorizerData`
and `Authorizer.authorizeByResourceType` of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from immutables import Map, MapMutation

from plimsoll_core.addresses import spelled
from plimsoll_core.security.acl import (
    EVERYBODY,
    OPERATION_BITS,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
)

_Key = TypeVar("_Key", int, str)

_BIT = OPERATION_BITS
EVERY_OPERATION = sum(_BIT.values())
"""The set of all operations, as bits."""
_ALL = _BIT[AclOperation.ALL]
_Op = AclOperation
_IMPLYING = {
    _Op.DESCRIBE: (_Op.DESCRIBE, _Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER),
    _Op.DESCRIBE_CONFIGS: (_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
}
_ALLOWS = {
    operation: _ALL | sum(_BIT[one] for one in _IMPLYING.get(operation, (operation,)))
    for operation in AclOperation
}
"""For each operation, the operations that imply it if they are allowed, as bits."""


def allowing(operation: AclOperation) -> tuple[AclOperation, ...]:
    """Return the operations that imply this one: an Allow of any of them allows it."""
    return (AclOperation.ALL, *_IMPLYING.get(operation, (operation,)))


_DENIES = {operation: _ALL | _BIT[operation] for operation in AclOperation}
"""For each operation, the operations that a Deny must name to deny it, as bits. A Deny implies no
other operation."""


@lru_cache(maxsize=1024)
def _permitted(allowed: int, denied: int) -> int:
    """Return the operations, as bits, that rules permit which together allow and deny these."""
    return sum(
        bit
        for operation, bit in _BIT.items()
        if allowed & _ALLOWS[operation] and not denied & _DENIES[operation]
    )


Masks = Map[str, tuple[int, int]]


class Cell(NamedTuple):
    """The ACLs of one principal for one resource name or prefix. `masks`: by host, as `spelled`
    writes it, two bit masks of the operations: allowed and denied."""

    acls: tuple[Acl, ...]
    masks: Masks


class Rules(NamedTuple):
    """The ACLs of one principal for one resource type, by literal name and by prefix. `lengths`:
    how many prefixes there are of each length."""

    literal: Map[str, Cell] = Map()
    prefixed: Map[str, Cell] = Map()
    lengths: Map[int, int] = Map()


class Present(NamedTuple):
    """The numbers of ACLs, of any principal, for each literal name and each prefix of one resource
    type. `lengths`: the number of ACLs with a prefix of each length."""

    literal: Map[str, int] = Map()
    prefixed: Map[str, int] = Map()
    lengths: Map[int, int] = Map()


class Ground(Enum):
    """The ground on which a request is allowed or denied."""

    SUPER_USER = "SuperUser"
    DISABLED = "Disabled"
    RULE = "Rule"
    NO_ACL_FOUND = "NoAclFound"
    DEFAULT = "Default"


class AclVerdict(NamedTuple):
    allowed: bool
    ground: Ground
    rule: Acl | None = None


class AclQuestion(NamedTuple):
    """The question whether a principal may perform an operation on a resource. `host`: the client's
    address, without port."""

    principal: str
    host: str
    operation: AclOperation
    resource: ResourceType
    name: str

    @property
    def hosts(self) -> tuple[str, str]:
        """Return the hosts of the ACLs that apply to the client, as `spelled` writes them."""
        return WILDCARD, spelled(self.host)


class AclIndex(msgspec.Struct, frozen=True):
    """All ACLs, indexed for decisions. `rules`: by principal and resource type; `present`: the
    numbers of ACLs of all principals, by resource type. Immutable: adding or removing an ACL
    returns another index."""

    rules: Map[tuple[str, ResourceType], Rules] = Map()
    present: Map[ResourceType, Present] = Map()

    def added(self, acls: Iterable[Acl]) -> AclIndex:
        """Return the index with distinct ACLs that it does not hold yet."""
        return self._changed(acls, 1)

    def removed(self, acls: Iterable[Acl]) -> AclIndex:
        """Return the index without distinct ACLs that it holds."""
        return self._changed(acls, -1)

    def allows(self, asked: AclQuestion, *, otherwise: bool = False) -> bool:
        """Return True if an ACL of the principal or of User:* allows the operation on the resource,
        and none denies it. `otherwise`: the result if no ACL of any principal is about the
        resource."""
        return bool(self.operations(asked, otherwise=otherwise) & _BIT[asked.operation])

    def operations(self, asked: AclQuestion, *, otherwise: bool = False) -> int:
        """Return all operations, as bits, that `allows` would allow the principal on the resource,
        whatever the question's own operation is. It takes as long as one decision."""
        allowed = denied = 0
        hosts = asked.hosts
        for cell in self._cells(asked.principal, asked.resource, asked.name):
            for host in hosts:
                masks = cell.masks.get(host)
                if masks is not None:
                    allowed |= masks[0]
                    denied |= masks[1]
        if allowed or denied:
            return _permitted(allowed, denied)
        if otherwise and not self._is_named(asked.resource, asked.name):
            return EVERY_OPERATION
        return 0

    def explain(self, asked: AclQuestion, *, otherwise: bool = False) -> AclVerdict:
        """Decide as `allows` does, and return the decision with the ACL that caused it, if any."""
        allow: Acl | None = None
        hosts = asked.hosts
        for cell in self._cells(asked.principal, asked.resource, asked.name):
            for acl in cell.acls:
                if spelled(acl.host) not in hosts:
                    continue
                if acl.permission is AclPermission.DENY:
                    if _BIT[acl.operation] & _DENIES[asked.operation]:
                        return AclVerdict(False, Ground.RULE, acl)
                elif allow is None and _BIT[acl.operation] & _ALLOWS[asked.operation]:
                    allow = acl
        if allow is not None:
            return AclVerdict(True, Ground.RULE, allow)
        if not self._is_named(asked.resource, asked.name):
            return AclVerdict(otherwise, Ground.NO_ACL_FOUND)
        return AclVerdict(False, Ground.DEFAULT)

    def has_rules(self, principal: str, kind: ResourceType) -> bool:
        """Return True if the principal or User:* has any ACL for resources of this type."""
        return any((holder, kind) in self.rules for holder in (principal, EVERYBODY))

    def allows_on_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return True if the principal may perform the operation on some resource of the type,
        existing or not: it has an Allow of this very operation that no Deny covers (KIP-679)."""
        found = [
            rules
            for holder in (principal, EVERYBODY)
            if (rules := self.rules.get((holder, kind))) is not None
        ]
        bits, host = _DENIES[operation], spelled(host)

        def with_bit(cells: Map[str, Cell], side: int) -> Iterator[str]:
            for name, cell in cells.items():
                masks = (cell.masks.get(WILDCARD), cell.masks.get(host))
                if any(mask is not None and mask[side] & bits for mask in masks):
                    yield name

        denied = {name for rules in found for name in with_bit(rules.literal, 1)}
        denied_prefixes = {name for rules in found for name in with_bit(rules.prefixed, 1)}
        if WILDCARD in denied:
            return False
        for rules in found:
            for name in with_bit(rules.literal, 0):
                if name == WILDCARD or (
                    name not in denied and not _dominated(name, denied_prefixes)
                ):
                    return True
            for prefix in with_bit(rules.prefixed, 0):
                if not _dominated(prefix, denied_prefixes):
                    return True
        return False

    def _cells(self, principal: str, kind: ResourceType, name: str) -> Iterator[Cell]:
        for holder in (principal, EVERYBODY):
            rules = self.rules.get((holder, kind))
            if rules is None:
                continue
            for literal in (name, WILDCARD):
                if (cell := rules.literal.get(literal)) is not None:
                    yield cell
            for length in rules.lengths:
                if (cell := rules.prefixed.get(name[:length])) is not None:
                    yield cell

    def _is_named(self, kind: ResourceType, name: str) -> bool:
        """Return True if an ACL of any principal is about the resource."""
        present = self.present.get(kind)
        if present is None:
            return False
        if name in present.literal or WILDCARD in present.literal:
            return True
        return any(name[:length] in present.prefixed for length in present.lengths)

    def _changed(self, acls: Iterable[Acl], step: int) -> AclIndex:
        """Add (`step` 1) or remove (-1) ACLs, those of one cell together: a User object may have
        thousands of rules about one name."""
        by_cell: dict[tuple[tuple[str, ResourceType], bool, str], list[Acl]] = {}
        for acl in acls:
            key = (acl.principal, acl.resource)
            cell = (key, acl.pattern is Pattern.LITERAL, acl.name)
            by_cell.setdefault(cell, []).append(acl)
        all_rules, all_present = self.rules.mutate(), self.present.mutate()
        for (key, literal, name), some in by_cell.items():
            _keep(all_rules, key, _with_rules(all_rules.get(key, Rules()), literal, some, step))
            present = _counted(all_present.get(key[1], Present()), literal, name, step * len(some))
            _keep(all_present, key[1], present)
        return AclIndex(rules=all_rules.finish(), present=all_present.finish())


def index_of(acls: Iterable[Acl]) -> AclIndex:
    """Build the index of distinct ACLs."""
    return AclIndex().added(acls)


def _keep(table: MapMutation[Any, Any], key: Any, names: Rules | Present) -> None:
    if names.literal or names.prefixed:
        table[key] = names
    else:
        table.pop(key, None)


def _dominated(name: str, prefixes: set[str]) -> bool:
    """Return True if the name begins with one of the prefixes."""
    return any(name.startswith(prefix) for prefix in prefixes)


def _with_rules(rules: Rules, literal: bool, changed: list[Acl], step: int) -> Rules:
    """Return the rules with ACLs of one cell added or removed."""
    name = changed[0].name
    cells = rules.literal if literal else rules.prefixed
    before = cells.get(name)
    cell = _cell_with(before, changed) if step > 0 else _cell_without(before, changed)
    cells = cells.delete(name) if cell is None else cells.set(name, cell)
    if literal:
        return rules._replace(literal=cells)
    lengths = rules.lengths
    if (before is None) != (cell is None):
        lengths = _with_count(lengths, len(name), step)
    return rules._replace(prefixed=cells, lengths=lengths)


def _cell_with(cell: Cell | None, new: list[Acl]) -> Cell:
    acls, masks = ((), Map()) if cell is None else cell
    together = {*acls, *new}
    assert len(together) == len(acls) + len(new), "a rule is added once"
    return Cell(tuple(sorted(together, key=lambda one: one.order)), _masks_with(masks, new))


def _cell_without(cell: Cell | None, gone: list[Acl]) -> Cell | None:
    assert cell is not None, "a rule is removed once"
    lost, hosts = set(gone), {spelled(one.host) for one in gone}
    left = tuple(one for one in cell.acls if one not in lost)
    assert len(left) == len(cell.acls) - len(gone), "a rule is removed once"
    masks = cell.masks.mutate()
    for host in hosts:
        del masks[host]
    rest = (one for one in left if spelled(one.host) in hosts)
    return Cell(left, _masks_with(masks.finish(), rest)) if left else None


def _masks_with(masks: Masks, acls: Iterable[Acl]) -> Masks:
    """Return the masks with the operations of further ACLs."""
    changed = masks.mutate()
    for one in acls:
        host = spelled(one.host)
        allow, deny = changed.get(host, (0, 0))
        if one.permission is AclPermission.DENY:
            deny |= _BIT[one.operation]
        else:
            allow |= _BIT[one.operation]
        changed[host] = (allow, deny)
    return changed.finish()


def _counted(present: Present, literal: bool, name: str, number: int) -> Present:
    if literal:
        return present._replace(literal=_with_count(present.literal, name, number))
    prefixed = _with_count(present.prefixed, name, number)
    lengths, was, now = present.lengths, name in present.prefixed, name in prefixed
    if was != now:
        lengths = _with_count(lengths, len(name), now - was)
    return present._replace(prefixed=prefixed, lengths=lengths)


def _with_count(counts: Map[_Key, int], key: _Key, step: int) -> Map[_Key, int]:
    count = counts.get(key, 0) + step
    assert count >= 0, "more rules went than there were"
    return counts.set(key, count) if count else counts.delete(key)
