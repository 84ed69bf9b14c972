"""Simulated members of groups: when a run may take their group for settled."""

import random
from types import SimpleNamespace
from typing import cast

from plimsoll_sim.hosts.clients import Habits, Witness
from plimsoll_sim.hosts.group_members import Fellows, GroupMember, MemberKind, MemberWitness


def _member(fellows: Fellows, name: str, owned: set[int]) -> GroupMember:
    """One that was told a part of generation 2 before the clients were stopped."""
    habits = Habits(name=name, topic="orders", partition=0, hosts=(), stopped=lambda: True)
    kind = MemberKind(group="g", fellows=fellows)
    none = SimpleNamespace()
    one = GroupMember(
        habits, random.Random(1), cast("Witness", none), kind, cast("MemberWitness", none)
    )
    one._joined, one._part, one.owned, one.sure = SimpleNamespace(generation_id=2), b"", owned, True
    return one


def test_member_without_coordinator_answer_is_unsettled() -> None:
    """Seed 121 of profile groups: a member took what it had heard before its coordinator moved for
    what is, and ended; its fellow's session was over by then, and it waited for ever."""
    fellows = Fellows()
    one, other = _member(fellows, "one", {0, 2, 4}), _member(fellows, "other", {1, 3, 5})
    assert one.idle
    other.sure = False
    assert not one.idle
    assert not other.idle


def test_stopped_member_of_settled_group_stays() -> None:
    fellows = Fellows()
    one = _member(fellows, "one", set(range(6)))
    assert one.idle
    assert not one.over
