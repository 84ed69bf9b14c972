"""Verbs about users who log in by certificates, and about a partner's authority."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_sim.hosts.certified_users import CERTIFIED, EXTERNAL, CertifiedUsers
from plimsoll_sim.scenario.script import BadScript, Words, whole
from plimsoll_sim.scenario.stage import Stage
from plimsoll_sim.scenario.user_verbs import rules, tenants

KNOWN_US = 3_000_000


def certified_users(stage: Stage) -> CertifiedUsers:
    found = tenants(stage).certified
    if found is None:
        raise BadScript("this cluster asks for no certificates: logins=certificates")
    return found


def certified(stage: Stage, words: Words) -> None:
    """certified dave days=1 allow=Read:payments* key=lost disabled=yes gone=yes: apply a User who
    logs in by a certificate, or change it, and wait until all brokers know (`nowait`: go on at
    once).  dave and erin get theirs from the operator, which is good for so many days of a second
    and a half; frank's is a partner's.  `key=lost` deletes its Secret, `gone=yes` the User."""
    users, name = certified_users(stage), words.take("a user")
    days, allowed = words.option("days", ""), words.option("allow", "")
    key, disabled, gone = (words.option(one, "") for one in ("key", "disabled", "gone"))
    nowait = words.flag("nowait")
    words.end()
    if name not in (*CERTIFIED, EXTERNAL):
        raise BadScript(f"{name} logs in by no certificate")
    if not users.is_declared(name):
        users.declare(name, days=whole(days) if days else None)
    elif days:
        users.set_days(name, whole(days))
    if allowed:
        users.change(name, acls=rules(allowed, denied=False))
    if disabled:
        users.change(name, disabled=disabled == "yes")
    if key == "lost":
        users.lose_key(name)
    if gone == "yes":
        users.remove(name)
    if not nowait:
        stage.run(KNOWN_US)


def partner(stage: Stage, words: Words) -> None:
    """partner replaced | joined: another authority signs frank's certificate; the one before is
    believed no more, or still; wait until all brokers know."""
    users, what = certified_users(stage), words.take("what")
    words.end()
    if what not in ("replaced", "joined"):
        raise BadScript(f"unknown: {what}")
    users.replace_partner(keep=what == "joined")
    users.sign_external()
    stage.run(KNOWN_US)


VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {
    "certified": certified,
    "partner": partner,
}
