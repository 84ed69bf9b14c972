"""Commands of scenarios about brokers' certificates and about impostors: replace, steal, and use
stolen ones.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.ids import BrokerId
from plimsoll_core.security.inside import InsideMode
from plimsoll_net.inside_identity import AUTHORITIES
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.secured import Secured, of_broker, of_operator
from plimsoll_sim.hosts import intruder
from plimsoll_sim.hosts.brokers import KAFKA_PORT, REPLICATION_PORT
from plimsoll_sim.hosts.intruder import REQUESTS, Loot
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.stage import CLIENT, Stage

PATIENCE = "15s"
SAID = {"required": InsideMode.REQUIRED, "nothing": None}


def secured(stage: Stage) -> Secured:
    found = stage.world.secured
    if found is None:
        raise BadScript("this cluster has no certificates: inside=required")
    return found


def renewed(stage: Stage) -> bool:
    return next(secured(stage).unfinished(), None) is None


def rotate(stage: Stage, words: Words) -> None:
    """rotate: request another internal authority, as an administrator."""
    words.end()
    secured(stage).rotate()


def state_inside(stage: Stage, words: Words) -> None:
    """state-inside required | nothing: state this mode in the LogCluster's spec, or remove the mode
    from it."""
    said = words.take("required, or nothing")
    words.end()
    if said not in SAID:
        raise BadScript(f"one of {', '.join(SAID)}")
    secured(stage).says(SAID[said])


def lose_status(stage: Stage, words: Words) -> None:
    """lose-status: remove the LogCluster's status, as if it had been restored from a backup that
    has none."""
    words.end()
    secured(stage).lose_status()


def days(stage: Stage, words: Words) -> None:
    """days 21: 21 days pass, by the clocks of the running operators and of the API server; days 21
    wrong: only the operators' clocks show it."""
    number, wrong = whole(words.take("a number")), words.flag("wrong")
    words.end()
    world = stage.world
    if wrong:
        secured(stage).mislead(number, world.operators)
    else:
        secured(stage).days_pass(number, world.operators, world.weather)


def linger(stage: Stage, words: Words) -> None:
    """linger 2 with=now: a process with the stolen certificate `now` connects to orders-0's leader
    as broker 2, and stays connected."""
    at, broker_id = stage.at(words.option("of", "")), whole(words.take("a broker"))
    who = secured(stage).intruder(_loot(stage, words.option("with", ""), broker_id), broker_id)
    words.end()
    if who is None:
        raise BadScript(f"broker {broker_id} is not registered")
    leader = stage.world.brokers[int(stage.partition(at).leader or 0)]
    stage.actor(CLIENT).begin(who.linger(of_broker(leader)))


def steal(stage: Stage, words: Words) -> None:
    """steal 2 as=old: an intruder stores the present content of broker 2's Secret under this
    name."""
    broker_id, name = whole(words.take("a broker")), words.option("as", "it")
    words.end()
    files = secured(stage).mounts.once[broker_id][-1]
    stage.stolen[name] = intruder.stolen(f"broker {broker_id}'s Secret", broker_id, files)


def intrude(stage: Stage, words: Words) -> list[str]:
    """intrude fetch 2 offset=5 with=old: a process that is not a broker sends the leader of
    orders-0 (or `of=`) a Fetch from this offset as broker 2, in its registered epoch, on the
    brokers' port, and presents the certificate that was stolen under that name (`with=nothing`:
    none; `with=forged`: one of another authority). Or it sends the controller a request: intrude
    heartbeat | register | metadata | forward 2."""
    what, broker_id = words.take("what it asks for"), whole(words.take("a broker"))
    at, offset = stage.at(words.option("of", "")), words.number("offset", 0)
    shown = _loot(stage, words.option("with", "nothing"), broker_id)
    words.end()
    who = secured(stage).intruder(shown, broker_id)
    if who is None or what not in ("fetch", *REQUESTS):
        raise BadScript(f"fetch, {', '.join(REQUESTS)}, and a registered broker")
    actor, us = stage.actor(CLIENT), microseconds(PATIENCE)

    async def work() -> list[str]:
        if what == "fetch":
            leader = stage.world.brokers[int(stage.partition(at).leader or 0)]
            return [await who.fetch(of_broker(leader), stage.partition(at), offset)]
        leading = next(host for host in stage.world.operators if host.active)
        return [await who.command(of_operator(leading), what, stage.world.rng)]

    return stage.ask(actor, work(), us)


def _loot(stage: Stage, name: str, broker_id: int) -> Loot:
    if name == "nothing":
        return intruder.NOTHING
    if name == "forged":
        known = secured(stage).inside.authorities
        assert known is not None, "the cluster has begun with one"
        return intruder.forged(stage.image.cluster_id, broker_id, known.trusted)
    if name not in stage.stolen:
        raise BadScript(f"nothing was stolen by the name {name}")
    loot, known = stage.stolen[name], secured(stage).inside.authorities
    assert known is not None, "the cluster has begun with one"
    assert loot.files is not None, "a Secret of a broker"
    # Authorities are no secret.
    return loot._replace(files={**loot.files, AUTHORITIES: known.trusted})


def kubelet(stage: Stage, words: Words) -> None:
    """kubelet 3 stops | goes-on: the kubelet of broker 3's machine stops to update mounted Secrets,
    or updates them again."""
    broker_id, how = whole(words.take("a broker")), words.take("stops, or goes-on")
    words.end()
    if how == "stops":
        secured(stage).mounts.held.add(broker_id)
    elif how == "goes-on":
        secured(stage).mounts.release(broker_id)
    else:
        raise BadScript("a kubelet stops, or goes-on")


def show_inside(stage: Stage, words: Words) -> list[str]:
    """show-inside: print the mode, the authorities by their age, and each broker's certificates."""
    words.end()
    found, known = stage.image.inside, secured(stage).inside.authorities
    if known is None:
        return [f"{found.mode.value}, no authority"]
    states = [
        "one announced" if known.announced is not None else "",
        "one on its way out" if known.former else "",
    ]
    lines = [f"{found.mode.value}, {', '.join(one for one in states if one) or 'one authority'}"]
    for host in stage.world.brokers.values():
        allowed = found.of(BrokerId(host.id))
        identity = None if not host.running or host.node is None else host.node.inside.identity
        shown = "nothing" if identity is None else "another"
        if identity is not None and identity.sha256 in allowed:
            shown = ("the newest", "the one before")[allowed.index(identity.sha256)]
        lines.append(f"{host.id}  may show {len(allowed)}, shows {shown}")
    return lines


VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {
    "rotate": rotate,
    "state-inside": state_inside,
    "lose-status": lose_status,
    "days": days,
    "linger": linger,
    "steal": steal,
    "intrude": intrude,
    "kubelet": kubelet,
    "show-inside": show_inside,
}


# --- impostors ------------------------------------------------------------------------------------

PORTS = {"clients": KAFKA_PORT, "replication": REPLICATION_PORT}
PRETEND_PATIENCE = "1s"


def pretend(stage: Stage, words: Words) -> list[str]:
    """pretend 2 offset=5 ahead=1 port=replication: a stranger sends the leader of orders-0 (or
    `of=`) a Fetch as broker 2, as if it had everything below the offset, in broker 2's registered
    epoch or this many above it, on the replication port or the clients' one; it claims to know
    `controller=9`."""
    at = stage.at(words.option("of", ""))
    broker_id = whole(words.take("a broker's number"))
    offset, ahead = words.number("offset", 0), words.number("ahead", 0)
    heard, name = words.number("controller", 0), words.option("port", "replication")
    words.end()
    broker = next((b for b in stage.image.brokers.values() if b.id == broker_id), None)
    if name not in PORTS or broker is None:
        raise BadScript("a registered broker, and port=clients or port=replication")
    claim = one_off_requests.Claim(broker_id, broker.broker_epoch + ahead, offset, heard)
    work = one_off_requests.pretend(stage.leader(at), PORTS[name], stage.partition(at), claim)
    return stage.ask(stage.actor(CLIENT), work, microseconds(PRETEND_PATIENCE))


IMPOSTOR_VERBS: dict[str, Callable[[Stage, Words], list[str] | None]] = {"pretend": pretend}
