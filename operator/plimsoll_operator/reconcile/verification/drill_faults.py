"""Injects one fault of a drill.

Called by `drill`, with a step and its number. Every fault uses an interface that the operator has
anyway: the API server, or the controller. If a fault cannot be injected, `NotInjected` is raised
with a sentence. A process is paused by an annotation that the kubelet of `plimsoll local` obeys;
Kubernetes offers the operator no way to pause one.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectionsAnswer, ElectLeaders
from plimsoll_core.messages.requests import Refused
from plimsoll_core.phrasing import replicas_text
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.drill import PAUSE_DEFAULT, DrillPartition, DrillStep, DrillTarget
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.resources import LOG_CLUSTERS, PODS, REASSIGNMENTS, VERIFICATIONS
from plimsoll_operator.reconcile.reconcile_term import Term

GRACE_SECONDS = 1
"""Grace period in seconds with which a killed broker's pod is deleted on Kubernetes. With 0, the
API server would remove the pod while its process may still run."""
FORBIDDEN = 403
NO_RIGHT = (
    "The operator lacks the right to inject this fault; install the chart with"
    " verification.drills=true."
)


class NotInjected(Exception):
    """Raised if a fault cannot be injected. Its text is a sentence."""


async def inject(term: Term, verification: Verification, step: DrillStep, number: int) -> str:
    """Inject the fault of a drill's step and return a sentence about what was done. `number`: that
    of the step. Raises `NotInjected` if the target does not exist, or the API server or the
    controller refuses."""
    try:
        match step.fault:
            case "KillBroker":
                return await _kill(term, step.target or DrillTarget())
            case "PauseBroker":
                return await _pause(term, step)
            case "PreferLeaders":
                return await _prefer_leaders(term)
            case "Reassign":
                return await _reassign(term, verification, step, number)
            case "RollAll":
                return await _roll(term)
    except Rejected as error:
        raise NotInjected(NO_RIGHT if error.status == FORBIDDEN else f"{error}.") from error
    except (Conflict, NotFound) as error:
        raise NotInjected(f"The object has changed meanwhile: {error}.") from error
    except ApiError as error:
        raise NotInjected(f"The API server refused the fault's request: {error}.") from error


async def _kill(term: Term, target: DrillTarget) -> str:
    broker_id, told = _broker(term, target)
    namespace, cluster = term.key
    name = labels.broker_pod(cluster, broker_id)
    pod = await term.kube.get(PODS, namespace, name)
    grace = 0 if term.options.local_faults else GRACE_SECONDS
    uid = pod["metadata"]["uid"]
    await term.kube.delete(PODS, namespace, name, uid=uid, grace_seconds=grace)
    how = f"with a grace of {grace} s" if grace else "and its process killed at once (SIGKILL)"
    return f"Broker {broker_id}{told}: pod {name} was deleted {how}."


async def _pause(term: Term, step: DrillStep) -> str:
    broker_id, told = _broker(term, step.target or DrillTarget())
    namespace, cluster = term.key
    name, span_s = labels.broker_pod(cluster, broker_id), seconds(step.for_ or PAUSE_DEFAULT)
    pod = await term.kube.get(PODS, namespace, name)
    until = timestamp(term.now_ms() + 1_000 * span_s)
    meta = {"uid": pod["metadata"]["uid"], "annotations": {labels.PAUSED_UNTIL: until}}
    await term.kube.merge(PODS, namespace, name, {"metadata": meta})
    return f"Broker {broker_id}{told}: its process stands still until {until}."


async def _prefer_leaders(term: Term) -> str:
    answer = await term.ask(ElectLeaders(kind="Preferred", needed_only=True))
    if isinstance(answer, Refused):
        raise NotInjected(answer.message)
    assert isinstance(answer, ElectionsAnswer), answer
    moved = sum(one.code == 0 for one in answer.partitions)
    return f"Preferred leaders were elected for {moved} partitions."


async def _roll(term: Term) -> str:
    stamp = timestamp(term.now_ms())
    patch = {"metadata": {"annotations": {labels.RESTART: stamp}}}
    await term.kube.merge(LOG_CLUSTERS, *term.key, patch)
    return f"A restart of all brokers was requested ({labels.RESTART}={stamp})."


async def _reassign(term: Term, verification: Verification, step: DrillStep, number: int) -> str:
    target = None if step.target is None else step.target.leader_of
    if target is None:
        raise NotInjected("Reassign needs target.leaderOf.")
    state, leader = _partition(term, target)
    replicas = list(state.replicas)
    spare = sorted(set(term.image.members) - set(term.image.leaving) - set(replicas))
    rest = [one for one in replicas if one != leader]
    after = [*rest, spare[0] if spare else leader]
    meta, name = verification.metadata, f"{verification.metadata.name}-drill-{number}"
    move = {"topic": target.topic, "partitions": [target.partition], "replicas": after}
    manifest = REASSIGNMENTS.manifest(
        {
            "name": name,
            "namespace": meta.namespace,
            "labels": {labels.MANAGED_BY: labels.OPERATOR},
            "ownerReferences": labels.owner(VERIFICATIONS.kind, meta.name, meta.uid),
        },
        spec={"clusterRef": {"name": term.key[1]}, "moves": [move]},
    )
    await term.kube.create(REASSIGNMENTS, manifest)
    return (
        f"Reassignment {name} moves {target.topic}-{target.partition} from replicas "
        f"[{replicas_text(replicas)}] to [{replicas_text(after)}]."
    )


def _broker(term: Term, target: DrillTarget) -> tuple[BrokerId, str]:
    """Return the id of the broker that the target names now, and a text that names the partition it
    leads, "" if the target is a broker. Raises `NotInjected` if there is no such broker or
    leader."""
    if target.broker is not None:
        if target.broker not in term.image.members:
            raise NotInjected(f"There is no broker {target.broker}.")
        return BrokerId(target.broker), ""
    if target.leader_of is None:
        raise NotInjected("The fault needs target.broker or target.leaderOf.")
    _, leader = _partition(term, target.leader_of)
    return leader, f", which led {target.leader_of.topic}-{target.leader_of.partition}"


def _partition(term: Term, target: DrillPartition) -> tuple[Partition, BrokerId]:
    """Return the partition and its leader's broker id. Raises NotInjected if there is no such
    partition or if it has no leader."""
    topic_id = term.image.topic_ids.get(target.topic)
    key = None if topic_id is None else PartitionKey(topic_id, target.partition)
    state = None if key is None else term.image.partitions.get(key)
    if state is None:
        raise NotInjected(f"There is no partition {target.topic}-{target.partition}.")
    if state.leader is None:
        raise NotInjected(f"Partition {target.topic}-{target.partition} has no leader.")
    return state, state.leader
