"""Verbs for members of groups: they come and die by themselves, and share out `PARTS` numbers."""

from __future__ import annotations

from plimsoll_sim.hosts.group_members import Fellows, MemberKind
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Words
from plimsoll_sim.scenario.stage import Stage

SHARED_US = 60_000_000


def _fellows(stage: Stage, group: str) -> Fellows:
    return stage.fellows.setdefault(group, Fellows())


def member(stage: Stage, words: Words) -> None:
    """member a g kind=eager instance=-: a member of group g comes, and stays until it dies; `kind`
    may be cooperative, `instance` makes it a static one."""
    name, group = words.take("a member"), words.take("a group")
    kind, instance = words.option("kind", "eager"), words.option("instance", "-")
    words.end()
    if kind not in ("eager", "cooperative"):
        raise BadScript(f"unknown kind of member: {kind}")
    stage.world.start_member(
        name,
        MemberKind(
            group=group,
            fellows=_fellows(stage, group),
            cooperative=kind == "cooperative",
            instance=None if instance == "-" else instance,
            restless=False,
        ),
    )


def dies(stage: Stage, words: Words) -> None:
    """dies a: the member's process ends, and tells nobody."""
    name = words.take("a member")
    words.end()
    for fellows in stage.fellows.values():
        for one in list(fellows.members):
            if one.name == name:
                fellows.members.remove(one)
                stage.world.clients.remove(one)
                for process in stage.world.client_processes:
                    if process.name == name:
                        process.die()
                return
    raise BadScript(f"there is no member {name}")


def members(stage: Stage, words: Words) -> list[str]:
    """members g: what each living member of group g was told last."""
    group = words.take("a group")
    words.end()
    return [one.told() for one in _fellows(stage, group).members]


def shared(stage: Stage, words: Words) -> list[str]:
    """shared g: until the living members of group g have all there is, in one generation; as
    `members`."""
    group = words.take("a group")
    words.end()
    fellows = _fellows(stage, group)
    stage.until(lambda: fellows.shared_out, f"{group} has shared out", SHARED_US)
    return [one.told() for one in fellows.members]


MEMBER_VERBS: dict[str, Verb] = {
    "member": member,
    "dies": dies,
    "members": members,
    "shared": shared,
}
