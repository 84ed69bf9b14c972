"""Commands of scenarios about restarts: set the brokers' revision, and show the restarts."""

from __future__ import annotations

from plimsoll_core.cluster.records import RestartEnded, RestartGranted
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.resources import VOLUME_CLAIMS
from plimsoll_sim.desired.revisions import BAD
from plimsoll_sim.scenario.script import BadScript, Words, whole
from plimsoll_sim.scenario.stage import Stage


def roll(stage: Stage, words: Words) -> None:
    """roll 2: from now on all brokers should run revision 2. A revision that begins with "bad" does
    not start."""
    revision = words.take("a revision")
    words.end()
    number = revision.removeprefix(BAD)
    if not number.isdecimal():
        raise BadScript("a revision is a number, perhaps behind the word bad")
    stage.world.objects.set_image_tag(revision)


def granted(stage: Stage, broker: str) -> bool:
    return BrokerId(int(broker)) in stage.image.grants


def rolled(stage: Stage) -> bool:
    """Return True if every broker runs the wanted revision and is active again."""
    wanted = stage.world.objects.image_tag
    hosts = stage.world.brokers.values()
    return not stage.image.grants and all(host.tag == wanted for host in hosts)


def restarts(stage: Stage) -> list[str]:
    """Return the grants and their outcomes, and the revision that each broker runs now."""
    told, tags = [], stage.world.nodes.tags
    for record in stage.world.ghost.history:
        if isinstance(record, RestartGranted):
            told.append(
                f"{record.broker_id}  granted, into {tags.get(record.revision, record.revision)}"
            )
        elif isinstance(record, RestartEnded):
            told.append(f"{record.broker_id}  is back" + (", proven" if record.proven else ""))
    hosts = stage.world.brokers.values()
    told.append("runs: " + "  ".join(f"{host.id} {host.tag or '-'}" for host in hosts))
    return told


def rollout(stage: Stage, words: Words) -> None:
    """rollout 10: the second pool rolls first, the other one 10 seconds after the pods of the
    second are ready; `rollout none`: both roll together."""
    pause = words.take("seconds or none")
    words.end()
    stage.world.objects.set_rollout(None if pause == "none" else whole(pause))


def delete_claim(stage: Stage, words: Words) -> None:
    """delete_claim 1: an administrator deletes the volume claim of broker 1, which Kubernetes keeps
    until the broker's pod has stopped."""
    broker = BrokerId(whole(words.take("a broker")))
    words.end()
    objects = stage.world.objects
    (name,) = (one for one in objects.names(VOLUME_CLAIMS) if one.endswith(f"-{broker}-0"))
    objects.delete(VOLUME_CLAIMS, name)


VERBS = {"roll": roll, "rollout": rollout, "delete_claim": delete_claim}
