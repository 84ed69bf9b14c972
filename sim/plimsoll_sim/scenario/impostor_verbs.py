"""The verb for a process that claims to be a broker."""

from __future__ import annotations

from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.hosts.brokers import KAFKA_PORT, REPLICATION_PORT
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.stage import CLIENT, Stage

PORTS = {"clients": KAFKA_PORT, "replication": REPLICATION_PORT}
PATIENCE = "1s"


def pretend(stage: Stage, words: Words) -> list[str]:
    """pretend 2 offset=5 ahead=1 port=replication: a stranger fetches as broker 2 from whoever
    leads orders-0 (or `of=`), as if it had everything below the offset, in broker 2's registered
    epoch or so many ahead of it, on the replication port or on the clients' one; it says that it
    knows of `controller=9`."""
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
    return stage.ask(stage.actor(CLIENT), work, microseconds(PATIENCE))


VERBS: dict[str, Verb] = {"pretend": pretend}
