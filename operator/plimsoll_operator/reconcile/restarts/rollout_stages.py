"""The stages of a staged roll: pools in their order, and what a pool waits for after the first one.

Called by the restart reconciler, which sends the stage with each request for a restart; the core
decides (`staged_rolls`). Nothing is remembered: the pause counts from the time at which the first
pool's pods became ready, as a Deployment's `minReadySeconds` does, so it survives operators.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import RolledPool, RollStage, Waits
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.cluster_status import RolloutStatus
from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.manifests.manifest_context import Context, digest
from plimsoll_operator.manifests.statefulset import revision
from plimsoll_operator.reconcile.restarts.broker_pods import PodState

PAUSE = "RolloutPause"
APPROVAL = "RolloutAwaitsApproval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The stages of a cluster's roll, the first one first, each a pool with members that stay.
    `revision`: identifies what all stages shall run. `hold`: what the pools after the first wait
    for, None if for nothing. `until_ms`: when `hold` ends by itself, None if it does not, or its
    time is not known yet."""

    stages: tuple[RolledPool, ...]
    revision: str
    hold: Waits | None = None
    until_ms: int | None = None

    def stage_of(self, broker_id: BrokerId, *, cannot_start: bool) -> RollStage | None:
        """Return the stage of a broker, None if it has none, since it has no pool."""
        for at, pool in enumerate(self.stages):
            if broker_id in pool.broker_ids:
                return RollStage(
                    earlier=self.stages[:at],
                    hold=self.hold if at else None,
                    cannot_start=cannot_start,
                )
        return None


def rollout_of(
    context: Context, image: ClusterImage, seen: Sequence[PodState], now_ms: int
) -> Rollout | None:
    """Return the stages of the cluster's rolls, or None if its pools roll together."""
    spec = context.cluster.spec
    if spec.rollout is None or not spec.pools:
        return None
    stages, parts = [], []
    for pool in spec.rollout.sorted_pools(spec.pools):
        members = tuple(b for b in image.members if b in pool.ids and b not in image.leaving)
        if members:
            wanted = revision(context.of_broker(members[0]))
            stages.append(RolledPool(name=pool.name, revision=wanted, broker_ids=members))
            parts.append([pool.first_id, wanted])
    plain = Rollout(stages=tuple(stages), revision=digest(parts))
    if len(stages) < 2:
        return plain
    if spec.rollout.manual:
        return _awaiting_approval(plain, spec.rollout.approved)
    return _pausing(plain, spec.rollout.pause_after_first, seen, now_ms)


def _awaiting_approval(plain: Rollout, approved: str | None) -> Rollout:
    if approved == plain.revision:
        return plain
    first = plain.stages[0].name
    until = f"spec.rollout.approved is {plain.revision}; only pool {first} is restarted before that"
    return replace(plain, hold=_hold(APPROVAL, until))


def _pausing(plain: Rollout, length: str | None, seen: Sequence[PodState], now_ms: int) -> Rollout:
    if length is None:
        return plain
    first = plain.stages[0]
    pods = [one.pod for one in seen if one.broker_id in first.broker_ids]
    since = [at for at in map(ready_since, pods) if at is not None]
    if len(since) < len(first.broker_ids):
        until = f"all pods of pool {first.name} have been ready for {length}"
        return replace(plain, hold=_hold(PAUSE, until))
    until_ms = max(since) + 1_000 * seconds(length)
    if now_ms >= until_ms:
        return plain
    until = f"{timestamp(until_ms)}, when all pods of pool {first.name} have been ready for "
    return replace(plain, hold=_hold(PAUSE, until + length), until_ms=until_ms)


def _hold(reason: str, until: str) -> Waits:
    return Waits(reason=reason, until=until, of_stage=True)


def ready_since(pod: Object | None) -> int | None:
    """Return when the pod became ready, in milliseconds since 1970. Return None if it is not."""
    status = (pod or {}).get("status") or {}
    for found in status.get("conditions") or ():
        if found.get("type") == "Ready" and found.get("status") == "True":
            return milliseconds(found["lastTransitionTime"])
    return None


def rollout_status(
    rollout: Rollout, busy: Collection[BrokerId], held: Collection[BrokerId]
) -> RolloutStatus:
    """Return what the status shows of a roll. `busy`: the brokers that do not run their revision
    yet, or restart; `held`: those of them that wait for their pool's turn."""
    rolling = [one for one in rollout.stages if {*one.broker_ids} & ({*busy} - {*held})]
    waiting = [one for one in rollout.stages if {*one.broker_ids} & {*held} and one not in rolling]
    next_, timed = None, None
    text = "".join(
        f"Pool {pool.name} ({brokers_text(pool.broker_ids)}) is being restarted. "
        for pool in rolling
    )
    if waiting:
        next_ = waiting[0].name
        if rolling:
            text += f"Pool {next_} is restarted next, once pool {rolling[0].name} is in sync."
        elif rollout.hold is not None:
            text += f"Pool {next_} is restarted next, and waits until {rollout.hold.until}."
            timed = rollout.until_ms
        else:
            text += f"Pool {next_} is restarted next, once the pools before it are in sync."
    return RolloutStatus(
        revision=rollout.revision,
        pool=rolling[0].name if rolling else None,
        next=next_,
        until=None if timed is None else timestamp(timed),
        message=text.strip(),
    )
