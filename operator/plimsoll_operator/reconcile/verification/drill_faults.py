"""Injects one fault of a drill.

Called by `drill`, with a step and its number. If a fault cannot be injected, `NotInjected` is
raised with a sentence. Every fault uses an interface that the operator has anyway: the API server,
or the controller. A process is paused by an annotation that the kubelet of `plimsoll local` obeys;
Kubernetes offers the operator no way to pause one.

A broker cuts or slows its own links and fills its own disk, by an order in the controller's answers
(`messages.drills`). It reports the order's number before the fault begins, and ends the fault by
its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.drills import BrokerFault, DrillOrder
from plimsoll_core.messages.elections import ElectionsAnswer, ElectLeaders
from plimsoll_core.messages.requests import Refused
from plimsoll_core.phrasing import replicas_text
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.drill import FOR_DEFAULT, DrillPartition, DrillStep, DrillTarget
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.resources import (
    LOG_CLUSTERS,
    PODS,
    REASSIGNMENTS,
    VERIFICATIONS,
    VOLUME_CLAIMS,
)
from plimsoll_operator.reconcile.reconcile_term import Term

GRACE_SECONDS = 1
"""Grace period in seconds with which a killed broker's pod is deleted on Kubernetes. With 0, the
API server would remove the pod while its process may still run."""
FORBIDDEN = 403
TOO_MANY = 429
ACK_LOOKS = 50
ACK_LOOK_S = 0.1
"""How often, and after how many seconds each, the operator looks for a broker's report that it has
taken an order. A broker sends a heartbeat every second."""
NO_RIGHT = (
    "The drill did not inject its fault, because the operator lacks the right to do so; install "
    "the chart with verification.drills=true, then create another Verification."
)


class NotInjected(Exception):
    """Raised if a fault cannot be injected. Its text is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault that was injected. `said`: a sentence about what was done; `until_ms`: when the fault
    ends, by the API server's clock, None if it does not last; `then`: its last step, to take once
    the outcome is noted; None if there is none."""

    said: str
    until_ms: int | None = None
    then: Callable[[], None] | None = None


async def inject(term: Term, verification: Verification, step: DrillStep, number: int) -> Injection:
    """Inject the fault of a drill's step. `number`: that of the step. Raises `NotInjected` if the
    target does not exist, or the API server, the controller or a broker refuses."""
    try:
        if step.fault == "Reassign":
            return await _reassign(term, verification, step, number)
        return await _FAULTS[step.fault](term, step)
    except Rejected as error:
        raise NotInjected(NO_RIGHT if error.status == FORBIDDEN else f"{error}.") from error
    except (Conflict, NotFound) as error:
        raise NotInjected(
            "The drill did not inject its fault, because another client changed or deleted an "
            f"object that the fault needs: {error}. To repeat the drill, create another "
            "Verification."
        ) from error
    except ApiError as error:
        raise NotInjected(
            "The drill did not inject its fault, because the API server refused the operator's "
            f"request: {error}. To repeat the drill, create another Verification."
        ) from error


async def _kill(term: Term, step: DrillStep) -> Injection:
    broker_id, told = _broker(term, step)
    namespace, cluster = term.key
    name = labels.broker_pod(cluster, broker_id)
    pod = await term.kube.get(PODS, namespace, name)
    grace = 0 if term.options.local_faults else GRACE_SECONDS
    uid = pod["metadata"]["uid"]
    await term.kube.delete(PODS, namespace, name, uid=uid, grace_seconds=grace)
    how = f"with a grace period of {grace} s" if grace else "and killed its process (SIGKILL)"
    return Injection(said=f"Broker {broker_id}{told}: the drill deleted pod {name} {how}.")


async def _evict(term: Term, step: DrillStep) -> Injection:
    broker_id, told = _broker(term, step)
    namespace, cluster = term.key
    name = labels.broker_pod(cluster, broker_id)
    pod = await term.kube.get(PODS, namespace, name)
    try:
        await term.kube.evict(namespace, name, uid=pod["metadata"]["uid"])
    except ApiError as error:
        if error.status != TOO_MANY:
            raise
        raise NotInjected(
            "The drill did not inject its fault, because the API server refused to evict pod "
            f"{name}: {error.reply}. When all brokers are ready, so that the PodDisruptionBudget "
            "allows an eviction, create another Verification."
        ) from error
    said = f"Broker {broker_id}{told}: the drill evicted pod {name}; the broker stops in order."
    return Injection(said=said)


async def _lose_volume(term: Term, step: DrillStep) -> Injection:
    broker_id, told = _broker(term, step)
    if why := _needs_volume(term, broker_id):
        raise NotInjected(why)
    namespace, cluster = term.key
    name = labels.broker_pod(cluster, broker_id)
    claim = await term.kube.get(VOLUME_CLAIMS, namespace, f"data-{name}")
    pod = await term.kube.get(PODS, namespace, name)
    uid, claim_uid = pod["metadata"]["uid"], claim["metadata"]["uid"]
    await term.kube.delete(VOLUME_CLAIMS, namespace, f"data-{name}", uid=claim_uid)
    await term.kube.delete(PODS, namespace, name, uid=uid, grace_seconds=GRACE_SECONDS)
    said = (
        f"Broker {broker_id}{told}: the drill deleted its PersistentVolumeClaim data-{name} and "
        "its pod; the broker comes back with an empty volume and copies its replicas."
    )
    return Injection(said=said)


def _needs_volume(term: Term, broker_id: BrokerId) -> str:
    """Return a sentence that names a partition of which the broker's replica cannot be spared: too
    few others are in sync, or about to restart. Return "" if there is none."""
    image, absent = term.image, away(term.image) | {broker_id}
    for key in sorted(image.hosted.get(broker_id, ())):
        state = image.partitions[key]
        left = [one for one in state.isr if one not in absent and image.brokers[one].active]
        if len(left) < state.effective_min_isr:
            where = f"{image.topics[state.topic_id].name}-{state.index}"
            return (
                f"The drill did not inject its fault, because without broker {broker_id} partition "
                f"{where} would have {len(left)} replicas in sync, and its min ISR is "
                f"{state.effective_min_isr}. Wait until all replicas of the partition are in sync, "
                "or give its topic more replicas; then create another Verification."
            )
    return ""


async def _kill_operator(term: Term, _: DrillStep) -> Injection:
    name, namespace = term.options.identity, term.options.namespace
    if term.options.local_faults:
        said = (
            "The drill stopped the controller, which starts again by itself and reads the "
            "metadata log."
        )
        return Injection(said=said, then=term.end_term)
    pod = await term.kube.get(PODS, namespace, name)
    uid = pod["metadata"]["uid"]
    await term.kube.delete(PODS, namespace, name, uid=uid, grace_seconds=GRACE_SECONDS)
    said = (
        f"The drill deleted the leading operator's pod {name} with a grace period of "
        f"{GRACE_SECONDS} s."
    )
    return Injection(said=said)


async def _cut_api(term: Term, step: DrillStep) -> Injection:
    if term.cut_api is None:
        raise NotInjected(
            "The drill did not inject its fault: this operator process cannot cut itself off from "
            "the API server. Install the chart with verification.drills=true, then create another "
            "Verification."
        )
    span_ms = _span_ms(step)
    until_ms = term.server_ms() + span_ms
    said = f"Operator {term.options.identity} cannot reach the API server until"
    return Injection(
        said=f"{said} {timestamp(until_ms)}.",
        until_ms=until_ms,
        then=lambda: None if term.cut_api is None else term.cut_api(span_ms),
    )


async def _order(term: Term, step: DrillStep) -> Injection:
    fault = cast("BrokerFault", step.fault)
    broker_id, told = _broker(term, step)
    orders, span_ms = term.controller.drill_orders, _span_ms(step)
    if (other := orders.live) is not None:
        raise NotInjected(
            f"The drill did not inject its fault, because its earlier fault {other.fault} of "
            f"broker {other.broker_id} had not ended yet. State a later `at` for the fault in "
            "another Verification."
        )
    number = max(term.now_ms(), _taken(term, broker_id) + 1)
    until_ms = term.server_ms() + span_ms
    orders.give(
        DrillOrder(broker_id=broker_id, number=number, fault=fault, left_ms=span_ms),
    )
    for _ in range(ACK_LOOKS):
        if _taken(term, broker_id) == number:
            said = f"Broker {broker_id}{told}: {_EFFECTS[fault]} until {timestamp(until_ms)}."
            return Injection(said=said, until_ms=until_ms)
        await asyncio.sleep(ACK_LOOK_S)
    orders.withdraw()
    raise NotInjected(
        f"The drill did not inject its fault, because broker {broker_id} did not accept the order "
        f"within {ACK_LOOKS * ACK_LOOK_S:g} s. Check that the broker runs, reaches the operator, "
        "and was restarted (and upgraded) since maintenance.allowDrills is true; then create "
        "another Verification."
    )


_EFFECTS: dict[BrokerFault, str] = {
    "CutLinks": "it has no connection to other brokers and controllers",
    "SlowLinks": "its requests to other brokers, and its replies to them, are 0.5 s late",
    "FillDisk": "it can write no records, as on a full disk,",
}


def _taken(term: Term, broker_id: BrokerId) -> int:
    """Return the number of the newest order that the broker has reported; 0 if there is none."""
    contact = term.controller.soft.contacts.get(broker_id)
    return 0 if contact is None or contact.figures is None else contact.figures.drill


def _span_ms(step: DrillStep) -> int:
    return 1_000 * seconds(step.for_ or FOR_DEFAULT)


async def _pause(term: Term, step: DrillStep) -> Injection:
    broker_id, told = _broker(term, step)
    namespace, cluster = term.key
    name, span_ms = labels.broker_pod(cluster, broker_id), _span_ms(step)
    pod = await term.kube.get(PODS, namespace, name)
    until = timestamp(term.now_ms() + span_ms)
    meta = {"uid": pod["metadata"]["uid"], "annotations": {labels.PAUSED_UNTIL: until}}
    await term.kube.merge(PODS, namespace, name, {"metadata": meta})
    said = f"Broker {broker_id}{told}: the drill paused its process until {until}."
    return Injection(said=said, until_ms=term.server_ms() + span_ms)


async def _prefer_leaders(term: Term, _: DrillStep) -> Injection:
    answer = await term.ask(ElectLeaders(kind="Preferred", needed_only=True))
    if isinstance(answer, Refused):
        raise NotInjected(answer.message)
    assert isinstance(answer, ElectionsAnswer), answer
    moved = sum(one.code == 0 for one in answer.partitions)
    said = f"The drill made the controller elect the preferred leaders of {moved} partitions."
    return Injection(said=said)


async def _roll(term: Term, _: DrillStep) -> Injection:
    stamp = timestamp(term.now_ms())
    patch = {"metadata": {"annotations": {labels.RESTART: stamp}}}
    await term.kube.merge(LOG_CLUSTERS, *term.key, patch)
    said = (
        f"The drill requested a restart of all brokers (annotation {labels.RESTART}={stamp} of "
        "the LogCluster)."
    )
    return Injection(said=said)


async def _reassign(
    term: Term, verification: Verification, step: DrillStep, number: int
) -> Injection:
    target = None if step.target is None else step.target.leader_of
    if target is None:
        raise NotInjected(
            "The drill did not inject its fault, because the fault names no partition; set "
            "target.leaderOf."
        )
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
    said = (
        f"Reassignment {name} moves {target.topic}-{target.partition} from replicas "
        f"[{replicas_text(replicas)}] to [{replicas_text(after)}]."
    )
    return Injection(said=said)


_FAULTS: dict[str, Callable[[Term, DrillStep], Awaitable[Injection]]] = {
    "CutApiServer": _cut_api,
    "CutLinks": _order,
    "Evict": _evict,
    "FillDisk": _order,
    "KillBroker": _kill,
    "KillOperator": _kill_operator,
    "LoseVolume": _lose_volume,
    "PauseBroker": _pause,
    "PreferLeaders": _prefer_leaders,
    "RollAll": _roll,
    "SlowLinks": _order,
}


def _broker(term: Term, step: DrillStep) -> tuple[BrokerId, str]:
    """Return the id of the broker that the step's target names now, and a text that names the
    partition it leads, "" if the target is a broker. Raises `NotInjected` if there is no such
    broker or leader."""
    target = step.target or DrillTarget()
    if target.broker is not None:
        if target.broker not in term.image.members:
            raise NotInjected(
                "The drill did not inject its fault, because the cluster has no broker "
                f"{target.broker}. Name another broker in another Verification."
            )
        return BrokerId(target.broker), ""
    if target.leader_of is None:
        raise NotInjected(
            "The drill did not inject its fault, because the fault names no broker. Set "
            "target.broker or target.leaderOf in another Verification."
        )
    _, leader = _partition(term, target.leader_of)
    return leader, f", which led {target.leader_of.topic}-{target.leader_of.partition}"


def _partition(term: Term, target: DrillPartition) -> tuple[Partition, BrokerId]:
    """Return the partition and its leader's broker id. Raises NotInjected if there is no such
    partition or if it has no leader."""
    topic_id = term.image.topic_ids.get(target.topic)
    key = None if topic_id is None else PartitionKey(topic_id, target.partition)
    state = None if key is None else term.image.partitions.get(key)
    if state is None:
        raise NotInjected(
            "The drill did not inject its fault, because partition "
            f"{target.topic}-{target.partition}, which target.leaderOf names, does not exist. Name "
            "another one in another Verification."
        )
    if state.leader is None:
        raise NotInjected(
            "The drill did not inject its fault, because partition "
            f"{target.topic}-{target.partition} has no leader. When it has one, create another "
            "Verification."
        )
    return state, state.leader
