"""Verbs about users who log in by certificates, and about a partner's authority."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.security.client_certificates import OWN_AUTHORITY
from plimsoll_sim.environment.certificates import all_of
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


def authority_state(stage: Stage) -> str:
    """Of the authority of clients, as it is stored: new, announced, or signs."""
    known = certified_users(stage).authorities
    if known is None:
        return "none"
    if known.announced is not None:
        return "announced"
    return "signs" if known.former else "new"


def show_certificates(stage: Stage, words: Words) -> list[str]:
    """show-certificates: the authority of clients, how many are believed, and of which the users'
    certificates are, the newest first."""
    words.end()
    users, security = certified_users(stage), stage.image.security
    known = users.authorities
    believed = sum(
        len(one.certificates) for one in security.authorities if one.name == OWN_AUTHORITY
    )
    lines = [f"{authority_state(stage)}, {believed} believed"]
    key = "" if known is None else all_of(known.current.certificate)[0].key
    for user, row in sorted(security.certificates.items()):
        of = (users.issuers[one.sha256] == key for one in row.certificates)
        lines.append(f"{user}  " + ", ".join("of this one" if one else "of another" for one in of))
    return lines


VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {
    "certified": certified,
    "partner": partner,
    "show-certificates": show_certificates,
}
