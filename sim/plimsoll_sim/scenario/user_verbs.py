"""Commands of scenarios about users with passwords or certificates: their declarations and their
requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.security.client_certificates import OWN_AUTHORITY
from plimsoll_operator.api.user import Rule
from plimsoll_sim.cluster.tenancy import Tenants
from plimsoll_sim.desired.users import rule
from plimsoll_sim.environment.certificates import all_of
from plimsoll_sim.hosts.certified_tenants import CertifiedTenant
from plimsoll_sim.hosts.certified_users import CERTIFIED, EXTERNAL, CertifiedUsers
from plimsoll_sim.hosts.client_calls import Lost
from plimsoll_sim.hosts.tenants import Tenant
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.stage import Stage

PATIENCE = "60s"
FLOOD = "60"
"""Number of batches of a flood if the command states none."""


class Wish(NamedTuple):
    """One request of a user to a broker's host. `shows`: the certificate to present; `batches`: the
    size of a flood."""

    user: str
    host: str
    what: str
    topic: str
    shows: str
    batches: int


def tenants(stage: Stage) -> Tenants:
    found = None if stage.world.secured is None else stage.world.secured.tenants
    if found is None:
        raise BadScript("this cluster asks for no logins: logins=on")
    return found


def user(stage: Stage, words: Words) -> None:
    """user alice allow=Read,Write:payments* deny=Read:invoices password=x overlap=5s disabled=yes
    quota=2000: apply or change a User, and wait until all brokers know it (`nowait`: do not wait).
    The named rules replace all earlier ones; `allow=nothing` removes all; `quota`: bytes a second
    that the user may write."""
    users, name = tenants(stage).users, words.take("a user")
    allowed, denied = words.option("allow", ""), words.option("deny", "")
    password, overlap = words.option("password", ""), words.option("overlap", "")
    disabled, quota = words.option("disabled", ""), words.option("quota", "")
    nowait = words.flag("nowait")
    words.end()
    if name not in users.passwords:
        users.declare(name)
    if overlap:
        users.set_overlap(name, microseconds(overlap) // 1_000_000)
    if password:
        users.set_password(name, password)
    if allowed or denied:
        acls = (*rules(allowed, denied=False), *rules(denied, denied=True))
        users.change(name, acls=acls)
    if disabled:
        users.change(name, disabled=disabled == "yes")
    if quota:
        users.set_quota(name, int(quota))
    if not nowait:
        stage.run(3_000_000)


def rules(text: str, *, denied: bool) -> tuple[Rule, ...]:
    if text in ("", "nothing"):
        return ()
    operations, _, name = text.partition(":")
    prefixed = name.endswith("*") and name != "*"
    bare = name.removesuffix("*") if prefixed else name
    return (rule(*operations.split(","), name=bare, denied=denied, prefixed=prefixed),)


def authorization(stage: Stage, words: Words) -> None:
    """authorization Off | Enforce: set the mode in the LogCluster; all brokers know it after three
    seconds (`nowait`: do not wait)."""
    mode, nowait = words.take("Off, or Enforce"), words.flag("nowait")
    words.end()
    if mode not in ("Off", "Enforce"):
        raise BadScript("Off, or Enforce")
    tenants(stage).ask_for_rights(mode)  # type: ignore[arg-type]  # one of them
    if not nowait:
        stage.run(3_000_000)


def tenant(stage: Stage, words: Words) -> list[str]:
    """tenant alice 1 log-in | produce | fetch | list | create | flood | ask-first payments: user
    alice sends broker 1 a request about the topic payments, over the connection on which she logged
    in there (`password=`; default: her newest). A user with certificates logs in by the newest one,
    or by `shows=former | first | forged | nothing`. `flood` writes sixty batches (`batches=600`).
    `fetch` waits at the end of the log for two seconds; with `nowait` the command `told` prints its
    answer later."""
    name, number, what = words.take("a user"), words.take("a broker"), words.take("what")
    topic = words.plain.pop(0) if words.plain else "payments"
    password, nowait = words.option("password", ""), words.flag("nowait")
    shows, batches = words.option("shows", "newest"), int(words.option("batches", FLOOD))
    words.end()
    host, known = stage.broker(number).name, tenants(stage)
    client = stage.tenants.get(name)
    if client is None:
        client = known.client(name, lambda: False, random.Random(name))
        stage.tenants[name] = client
    newest = known.users.passwords.get(name, ["guess"])[-1]
    work = _work(stage, client, Wish(name, host, what, topic, shows, batches), password or newest)
    actor = stage.actor(f"tenant-{name}")
    if nowait:
        stage.pending.append(actor.begin(work))
        return []
    return stage.ask(actor, work, microseconds(PATIENCE))


async def _work(stage: Stage, client: Tenant, asked: Wish, password: str) -> list[str]:
    name, host, what, topic, shows, batches = asked
    try:
        if what == "log-in" and isinstance(client, CertifiedTenant):
            stage.sessions[name, host] = await client.log_in_by(host, client.shown(shows))
            return [f"{name}: logged in"]
        if what in ("log-in", "ask-first"):
            connection = await client.connected(host)
            stage.sessions[name, host] = connection
            if what == "ask-first":
                await client.ask_first(connection, host)
            else:
                await client.log_in(connection, host, password)
            return [f"{name}: logged in"]
        connection = stage.sessions[name, host]
        if what == "list":
            names = await client.metadata(connection, host, topic)
            return [f"{name}: sees {', '.join(sorted(names)) or 'nothing'}"]
        if what == "flood":
            since_us = stage.world.loop.now_us
            codes = [await client.produce(connection, host, topic) for _ in range(batches)]
            lasted_s = (stage.world.loop.now_us - since_us) // 1_000_000
            return [f"{name}: {codes.count(Code.NONE)} batches are written in {lasted_s} s"]
        asks: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {
            "produce": client.produce, "fetch": client.wait_for_records, "create": client.create,
        }  # fmt: skip
        code = await asks[what](connection, host, topic)
    except Lost as error:
        return [f"{name}: {error}"]
    return [f"{name}: {Code(code).name}"]


def told(stage: Stage, words: Words) -> list[str]:
    """told: print the answers to all requests that were sent with `nowait`."""
    words.end()
    pending, stage.pending = stage.pending, []
    us = microseconds(PATIENCE)
    return [line for task in pending for line in _result(stage, task, us)]


def _result(stage: Stage, task: Any, us: int) -> list[str]:
    if not stage.waited(task.done, us):
        return ["no answer"]
    found: list[str] = task.result()
    return found


VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {
    "user": user,
    "authorization": authorization,
    "tenant": tenant,
    "told": told,
}


# --- users with certificates ----------------------------------------------------------------------

KNOWN_US = 3_000_000


def certified_users(stage: Stage) -> CertifiedUsers:
    found = tenants(stage).certified
    if found is None:
        raise BadScript("this cluster asks for no certificates: logins=certificates")
    return found


def certified(stage: Stage, words: Words) -> None:
    """certified dave days=1 allow=Read:payments* key=lost disabled=yes gone=yes: apply or change a
    User that logs in by a certificate, and wait until all brokers know it (`nowait`: do not wait).
    The operator issues the certificates of dave and erin, valid for so many days of 1.5 s each; a
    partner's authority issues frank's. `key=lost` deletes the user's Secret, `gone=yes` the
    User."""
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
    """partner replaced | joined: another authority signs frank's certificate. With `replaced` the
    previous authority is no longer trusted, with `joined` it still is. Wait until all brokers know
    it."""
    users, what = certified_users(stage), words.take("what")
    words.end()
    if what not in ("replaced", "joined"):
        raise BadScript(f"unknown: {what}")
    users.replace_partner(keep=what == "joined")
    users.sign_external()
    stage.run(KNOWN_US)


def authority_state(stage: Stage) -> str:
    """Return the state of the stored authority of client certificates: new, announced, or signs."""
    known = certified_users(stage).authorities
    if known is None:
        return "none"
    if known.announced is not None:
        return "announced"
    return "signs" if known.former else "new"


def show_certificates(stage: Stage, words: Words) -> list[str]:
    """show-certificates: print the authority of client certificates, how many authorities are
    trusted, and which one signed each of the users' certificates, the newest first."""
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


CERTIFICATE_VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {
    "certified": certified,
    "partner": partner,
    "show-certificates": show_certificates,
}
