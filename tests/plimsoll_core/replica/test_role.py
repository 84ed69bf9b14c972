"""The transitions between a replica's roles, their causes, and that only the replica makes them."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.plimsoll_core.replica.copies import Batch, Copy, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.role import (
    FAILED,
    FOLLOWING,
    HALTED,
    MAY_FOLLOW,
    Failed,
    Following,
    Halted,
    Leading,
    Role,
    succeed,
)

ROOT = Path(__file__).resolve().parents[3]
ME, OTHER = 1, 2
ROLES: tuple[type[Role], ...] = (Halted, Following, Leading, Failed)
Happening = Callable[[Copy], None]


def a_leading() -> Leading:
    role = Copy(ME, metadata(ME, 1)).replica.role
    assert isinstance(role, Leading)
    return role


def metadata(leader: int | None, leader_epoch: int, partition_epoch: int | None = None):
    epoch = leader_epoch if partition_epoch is None else partition_epoch
    return a_partition(leader=leader, leader_epoch=leader_epoch, partition_epoch=epoch)


def halted_copy() -> Copy:
    """Fenced by the leader of epoch 1."""
    copy = Copy(ME, metadata(OTHER, 1))
    copy.replica.halt()
    return copy


BEFORE: dict[type[Role], Callable[[], Copy]] = {
    Halted: halted_copy,
    Following: lambda: Copy(ME, metadata(OTHER, 1)),
    Leading: lambda: Copy(ME, metadata(ME, 1)),
    Failed: lambda: _after(Copy(ME, metadata(OTHER, 1)), fails),
}


def _after(copy: Copy, happens: Happening) -> Copy:
    happens(copy)
    return copy


def elected(copy: Copy) -> None:
    copy.hear(metadata(ME, 2))


def other_elected(copy: Copy) -> None:
    copy.hear(metadata(OTHER, 2))


def nobody_elected(copy: Copy) -> None:
    copy.hear(metadata(None, 2))


def isr_changed(copy: Copy) -> None:
    """Same leader, same leader epoch."""
    copy.hear(metadata(copy.replica.partition.leader, 1, 2))


def deposed_in_its_epoch(copy: Copy) -> None:
    copy.hear(metadata(OTHER, 1, 2))


def closes(copy: Copy) -> None:
    copy.replica.close(Code.NOT_LEADER_OR_FOLLOWER)


def fails(copy: Copy) -> None:
    copy.replica.fail()


def fenced(copy: Copy) -> None:
    copy.replica.halt()


def metadata_behind_the_log(copy: Copy) -> None:
    copy.log.append(Batch(copy.end, 9, 0))
    copy.hear(metadata(OTHER, 2))


@pytest.mark.parametrize(
    ("before", "happens", "after"),
    [
        (Halted, elected, Leading),
        (Halted, other_elected, Following),
        (Halted, nobody_elected, Following),
        (Halted, isr_changed, Halted),
        (Halted, closes, Halted),
        (Halted, fails, Failed),
        (Halted, metadata_behind_the_log, Failed),
        (Following, elected, Leading),
        (Following, other_elected, Following),
        (Following, nobody_elected, Following),
        (Following, isr_changed, Following),
        (Following, fenced, Halted),
        (Following, closes, Halted),
        (Following, fails, Failed),
        (Following, metadata_behind_the_log, Failed),
        (Leading, elected, Leading),
        (Leading, other_elected, Following),
        (Leading, nobody_elected, Following),
        (Leading, isr_changed, Leading),
        (Leading, deposed_in_its_epoch, Halted),
        (Leading, closes, Halted),
        (Leading, fails, Failed),
        (Leading, metadata_behind_the_log, Failed),
        (Failed, elected, Failed),
        (Failed, other_elected, Failed),
        (Failed, isr_changed, Failed),
        (Failed, closes, Failed),
        (Failed, fails, Failed),
    ],
    ids=lambda part: part.__name__,
)
def test_replica_takes_the_role_that_follows(
    before: type[Role], happens: Happening, after: type[Role]
) -> None:
    copy = BEFORE[before]()
    assert type(copy.replica.role) is before
    happens(copy)
    role = copy.replica.role
    assert type(role) is after
    assert copy.replica.leader is (role.leader if isinstance(role, Leading) else None)
    assert copy.replica.failed == (after is Failed)


def test_replica_without_metadata_is_halted() -> None:
    copy = Copy(ME)
    fresh = type(copy.replica)(a_partition(), copy.log, None, copy.around)
    assert fresh.role is HALTED
    assert fresh.fetches_from is None
    assert fresh.produce(Batch(0, -1, 0), -1) is Code.NOT_LEADER_OR_FOLLOWER


def test_leader_role_changes_with_its_leader_epoch() -> None:
    copy = Copy(ME, metadata(ME, 1))
    first = copy.replica.role
    isr_changed(copy)
    assert copy.replica.role is first
    copy.hear(metadata(ME, 2, 3))
    assert copy.replica.role != first


def test_replica_fetches_only_while_following() -> None:
    sources = {kind: make().replica.fetches_from for kind, make in BEFORE.items()}
    assert sources == {Halted: None, Following: OTHER, Leading: None, Failed: None}


@pytest.mark.parametrize("kind", [Halted, Leading, Failed])
def test_replica_that_does_not_fetch_cannot_be_fenced(kind: type[Role]) -> None:
    copy = BEFORE[kind]()
    with pytest.raises(AssertionError):
        copy.replica.halt()
    assert type(copy.replica.role) is kind


def test_failed_replica_takes_no_other_role() -> None:
    for after in (FOLLOWING, HALTED, a_leading()):
        with pytest.raises(AssertionError):
            succeed(FAILED, after)
    assert succeed(FAILED, FAILED) is FAILED


def test_table_names_roles_and_transitions_with_reasons() -> None:
    assert set(MAY_FOLLOW) == set(ROLES)
    assert all(reason for after in MAY_FOLLOW.values() for reason in after.values())
    assert {kind: set(ROLES) - set(after) for kind, after in MAY_FOLLOW.items()} == {
        Halted: set(),
        Following: set(),
        Leading: set(),
        Failed: {Halted, Following, Leading},
    }


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def test_shell_and_simulator_assign_no_replica_field() -> None:
    shells = ("broker_image/plimsoll_broker", "sim/plimsoll_sim")
    found = [
        f"{path.relative_to(ROOT)}:{target.lineno}"
        for shell in shells
        for path in sorted((ROOT / shell).rglob("*.py"))
        for target in assigned(ast.parse(path.read_text()))
        if ast.unparse(target.value).rpartition(".")[2] == "replica"
    ]
    assert not found, f"these write what the replica alone writes: {found}"
