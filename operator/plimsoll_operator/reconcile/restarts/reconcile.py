"""Restarts brokers after changes of their pods' template: image, config, resources and others.

A pod with another revision than the spec's waits for the controller's grant. The leading operator
carries out a grant, and repeats that until it has succeeded: it writes the template under the
resourceVersion that it read and deletes the pod by its uid, so that a late write of a frozen or
deposed operator has no effect. This module does not decide which broker may restart, and never
touches a pod without a grant, except one that is certainly dead (`replace_pod`).
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from typing import Final

from plimsoll_core.cluster.model import Grant
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import RequestRestart, RestartAnswer, WithdrawRestart
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api import labels
from plimsoll_operator.api.broker_configs import spec_refusal
from plimsoll_operator.api.cluster_status import BLOCKED_MAX, BlockedAction, RolloutStatus
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected, Unavailable
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    CORE_EVENTS,
    PODS,
    STATEFUL_SETS,
)
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.manifests.configmap import config_map_name
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.statefulset import revision, stateful_set
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.restarts import stateful_set_repair
from plimsoll_operator.reconcile.restarts.broker_pods import (
    FAILED_CREATE,
    REPLACE,
    PodState,
    is_stuck,
    not_created,
    replace_pod,
    trouble,
)
from plimsoll_operator.reconcile.restarts.rollout_stages import (
    Rollout,
    rollout_of,
    rollout_status,
)
from plimsoll_operator.reconcile.shared.broker_rolls import Rolling, rolls_of
from plimsoll_operator.reconcile.shared.deleted_claims import (
    brokers_with_deleted_claims,
    waits_for_claim,
)
from plimsoll_operator.reconcile.shared.hibernation import stopped_of
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.restarts")

AGAIN_MS = 2_000
RESTART: Final = "Restart"
REFUSED = "RestartRefused"


async def reconcile(term: Term, _: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result)
    return result


async def _reconcile(term: Term, result: PassResult) -> None:
    cluster, context = term.cluster, manifest_context(term)
    if cluster is None or context is None:
        return
    if spec_refusal(cluster, term.image.metadata_version) is not None:
        return
    try:
        pass_ = RestartReconciler(term, result, context)
        await pass_.run()
    except Conflict as error:
        raise Retry(str(error), after_ms=500) from error
    except Unavailable as error:
        raise Retry(str(error)) from error
    except ApiError as error:
        text = (
            "The API server rejected a request by which the operator restarts brokers, so "
            "restarts wait. Remove the cause (quota, admission or RBAC); the operator tries "
            f"again: {error}"
        )
        why = Cause(reason=REFUSED, message=text)
        result.stall(StallSource.RESTARTS, why)
        raise Retry(str(error)) from error
    result.unstall(StallSource.RESTARTS)
    if rolls_of(term).rolling is not None or pass_.stuck or pass_.absent:
        result.add_later(Work(Task.ROLLS, term.key), AGAIN_MS)
    result.mark_cluster()


class RestartReconciler:
    """One pass of the restart reconciler over all brokers of a cluster: continues the granted
    restarts, requests others, and replaces pods on lost nodes."""

    def __init__(self, term: Term, result: PassResult, context: Context) -> None:
        self.term = term
        self.result = result
        self.context = context
        self.waits: list[BlockedAction] = []
        self.stuck: list[BlockedAction] = []
        self.now_ms = 0
        self.absent: list[BrokerId] = []
        self.rollout: Rollout | None = None
        # Brokers that wait for their pool's turn to roll.
        self.held: set[BrokerId] = set()

    async def run(self) -> None:
        seen = await self._look()
        image = self.term.image
        self.rollout = rollout_of(self.context, image, seen, self.now_ms)
        for at, one in enumerate(seen):
            if not self.context.cluster.is_without_pool(one.broker_id):
                seen[at] = one = await stateful_set_repair.restore(
                    self.term, self.result, self.context, one
                )
            if one.claim_deleted and one.broker_id in stopped_of(self.term):
                self.waits.append(waits_for_claim(self.term, one.broker_id, "Hibernate"))
            if one.pod is not None and is_stuck(one.pod, self.now_ms):
                waits = await replace_pod(self.term, one.broker_id, one.pod)
                self.stuck += [] if waits is None else [waits]
            if (grant := image.grants.get(one.broker_id)) is not None:
                await self._go_on(one, grant)
        # Active ones first: a grant to a broker that cannot come back holds up the rest.
        for one in sorted(seen, key=lambda one: (not self._active(one.broker_id), one.broker_id)):
            if self._is_due(one):
                await self._begin(one)
        await self._find_troubles(seen)
        self._tell(seen)
        if rolls_of(self.term).rolling is None:
            await self._sweep(seen)

    async def _look(self) -> list[PodState]:
        """Read all StatefulSets, pods and volume claims of brokers from the API server, not from a
        cache. Return those of members, in order of their ids."""
        namespace, name = self.term.key
        ours = f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker"
        sets = await self.term.kube.list(STATEFUL_SETS, namespace, label_selector=ours)
        pods = await self.term.kube.list(PODS, namespace, label_selector=ours)
        deleted = await brokers_with_deleted_claims(self.term)
        self.now_ms = pods.server_ms or self.term.now_ms()
        by_name = {pod["metadata"]["name"]: pod for pod in pods.items}
        seen = []
        for item in sets.items:
            meta = item["metadata"]
            owners = [o["uid"] for o in meta.get("ownerReferences") or ()]
            number = labels.broker_of(name, meta["name"])
            own = owners == [self.context.cluster.metadata.uid]
            if number is None or not own or meta.get("deletionTimestamp"):
                continue
            broker_id = BrokerId(number)
            pod = by_name.get(labels.broker_pod(name, broker_id))
            self._note_node(broker_id, pod)
            if broker_id in self.term.image.members:
                going = broker_id in deleted
                seen.append(PodState(broker_id=broker_id, owner=item, pod=pod, claim_deleted=going))
        return sorted(seen, key=lambda one: one.broker_id)

    def _note_node(self, broker_id: BrokerId, pod: Object | None) -> None:
        """Remember the node of a broker's pod for its LogBroker, or forget it if there is none."""
        nodes = rolls_of(self.term).nodes
        node = "" if pod is None else (pod.get("spec") or {}).get("nodeName") or ""
        if node:
            nodes[broker_id] = str(node)
        else:
            nodes.pop(broker_id, None)

    def _wanted(self, one: PodState) -> str:
        """Return the revision that the broker should run: its pool's. A broker without a
        pool has no other template than its StatefulSet's."""
        if self.context.cluster.is_without_pool(one.broker_id):
            return one.template_revision
        return revision(self.context.of_broker(one.broker_id))

    def _active(self, broker_id: BrokerId) -> bool:
        broker = self.term.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def _is_due(self, one: PodState) -> bool:
        image = self.term.image
        if one.broker_id in image.grants or one.broker_id in image.leaving:
            return False
        if one.pod is None or one.terminating:
            return False
        return one.pod_revision != self._wanted(one)

    # --- with a grant ---------------------------------------------------------------------------

    async def _begin(self, one: PodState) -> None:
        if one.claim_deleted:
            self.waits.append(waits_for_claim(self.term, one.broker_id, RESTART))
        elif await self._ask(one, one.pod_uid):
            await self._carry_out(one, self.term.image.grants.get(one.broker_id))

    async def _ask(self, one: PodState, pod_uid: str | None) -> bool:
        broker_id, revision_ = one.broker_id, self._wanted(one)
        stage = None
        if self.rollout is not None:
            stage = self.rollout.stage_of(broker_id, cannot_start=bool(trouble(one.pod)))
        request = RequestRestart(
            broker_id=broker_id, pod_uid=pod_uid, revision=revision_, stage=stage
        )
        answer = await self.term.ask(request)
        if isinstance(answer, Refused):
            raise Retry(answer.message)
        assert isinstance(answer, RestartAnswer)
        if any(wait.of_stage for wait in answer.waits):
            self.held.add(broker_id)
        self.waits += (
            BlockedAction(
                action=RESTART,
                broker=broker_id,
                topic=wait.topic,
                partition=wait.index,
                reason=wait.reason,
                until=wait.until,
                since=timestamp(self.term.now_ms()),
            )
            for wait in answer.waits
        )
        return answer.granted

    async def _go_on(self, one: PodState, grant: Grant) -> None:
        """Continue a granted restart. If the wanted revision has changed, or the new pod does not
        start with an earlier one, first request a grant for the wanted revision. Withdraw a grant
        that is not needed."""
        if self._is_needless(one, grant):
            await self._withdraw(one, grant)
            return
        replaced = one.pod_uid not in (None, grant.pod_uid) and not one.terminating
        runs = one.pod_revision if replaced else grant.revision
        pod_uid = one.pod_uid if replaced else grant.pod_uid
        if runs != self._wanted(one) and not await self._ask(one, pod_uid):
            return
        await self._carry_out(one, self.term.image.grants.get(one.broker_id))

    def _is_needless(self, one: PodState, grant: Grant) -> bool:
        """Return True if the granted restart is not needed: the pod runs the wanted revision, and
        no operator can have begun to restart it. Once a restart has begun, its grant is needed: the
        pod's deletion may still arrive."""
        wanted = self._wanted(one)
        if one.pod_uid != grant.pod_uid or one.pod_revision != wanted or one.terminating:
            return False
        begun = stateful_set_repair.has_begun(self.term, one, wanted)
        return not begun and grant.revision != wanted

    async def _carry_out(self, one: PodState, grant: Grant | None) -> None:
        wanted = self._wanted(one)
        if grant is None or grant.revision != wanted:
            return
        namespace = self.term.key[0]
        if one.template_revision != wanted:
            template = stateful_set(self.context, one.broker_id)["spec"]["template"]
            # Under the resourceVersion that was read, so that a later write is kept.
            await self.term.kube.replace(
                STATEFUL_SETS, stateful_set_repair.with_spec(one, template=template)
            )
        if one.pod is None or one.terminating or one.pod_uid != grant.pod_uid:
            return
        if one.claim_deleted:
            self.waits.append(waits_for_claim(self.term, one.broker_id, RESTART))
            return
        name = one.pod["metadata"]["name"]
        logger.info(
            "the operator restarts pod %s/%s so that it runs revision %s of its template",
            *(namespace, name, grant.revision),
        )
        with suppress(NotFound):
            await self.term.kube.delete(PODS, namespace, name, uid=str(grant.pod_uid))

    async def _withdraw(self, one: PodState, grant: Grant) -> None:
        """Withdraw a grant that is no longer needed. The pod was never deleted under it.

        The StatefulSet gets another resourceVersion first, so that an operator suspended just
        before it writes the granted template has no effect when it resumes.
        """
        body = stateful_set_repair.marked(one, labels.WITHDRAWN, grant.revision)
        await self.term.kube.replace(STATEFUL_SETS, body)
        request = WithdrawRestart(
            broker_id=one.broker_id, pod_uid=str(one.pod_uid), revision=grant.revision
        )
        if isinstance(answer := await self.term.ask(request), Refused):
            raise Retry(answer.message)

    # --- what is told, and what is left over ------------------------------------------------------

    async def _find_troubles(self, seen: list[PodState]) -> None:
        """Find out why the pods of brokers that are inactive or being restarted do not start, for
        statuses."""
        term = self.term
        stopped = stopped_of(term)
        seen = [one for one in seen if one.broker_id not in stopped]
        self.absent = [one.broker_id for one in seen if not self._active(one.broker_id)]
        found = {}
        for one in seen:
            if one.broker_id in self.absent or one.broker_id in term.image.grants:
                why = trouble(one.pod) or (await self._not_created(one) if one.pod is None else "")
                if why:
                    found[one.broker_id] = why
        rolls_of(term).troubles = found

    async def _not_created(self, one: PodState) -> str:
        """Return why the StatefulSet cannot create the pod (a quota, a policy) by its Events, "" if
        unknown."""
        meta = one.owner["metadata"]
        selector = f"involvedObject.uid={meta['uid']},reason={FAILED_CREATE}"
        try:
            found = await self.term.kube.list(
                CORE_EVENTS, meta["namespace"], field_selector=selector
            )
        except Rejected:
            return ""
        return not_created(found.items)

    def _tell(self, seen: list[PodState]) -> None:
        term, rolls = self.term, rolls_of(self.term)
        self.result.block(RESTART, _worst_first(self.waits))
        self.result.block(REPLACE, self.stuck)
        new = [one.broker_id for one in seen if one.pod_revision == self._wanted(one)]
        old = [o.broker_id for o in seen if o.pod is not None and o.broker_id not in new]
        if not old and not term.image.grants:
            rolls.rolling = None
            return
        grants = term.image.grants
        away = {
            one.broker_id: rolls.troubles.get(one.broker_id, "")
            for one in seen
            if one.broker_id in grants
        }
        rolls.rolling = Rolling(
            revisions=self._rolled_to(seen, old),
            current=sum(broker_id not in grants for broker_id in new),
            total=len(seen),
            away=tuple(sorted(away.items())),
            staged=self._staged(old),
        )

    def _staged(self, old: list[BrokerId]) -> RolloutStatus | None:
        if self.rollout is None:
            return None
        return rollout_status(self.rollout, {*old, *self.term.image.grants}, self.held)

    def _rolled_to(self, seen: list[PodState], old: list[BrokerId]) -> tuple[str, ...]:
        """Return the revisions into which brokers are being restarted: one for each pool that
        rolls."""
        rolling = {*old, *self.term.image.grants}
        return tuple(sorted({self._wanted(one) for one in seen if one.broker_id in rolling}))

    async def _sweep(self, seen: list[PodState]) -> None:
        """Delete the brokers' ConfigMaps that no StatefulSet or pod refers to any more."""
        namespace, name = self.term.key
        own = [self.context.of_broker(one.broker_id) for one in seen]
        used = {config_map_name(context) for context in (self.context, *own)}
        used |= {n for one in seen for n in _configs(one.owner["spec"]["template"])}
        used |= {n for one in seen if one.pod is not None for n in _configs(one.pod)}
        ours = f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker"
        found = await self.term.kube.list(CONFIG_MAPS, namespace, label_selector=ours)
        for item in found.items:
            meta = item["metadata"]
            owners = [o["uid"] for o in meta.get("ownerReferences") or ()]
            if meta["name"] in used or owners != [self.context.cluster.metadata.uid]:
                continue
            with suppress(NotFound):
                await self.term.kube.delete(CONFIG_MAPS, namespace, meta["name"], uid=meta["uid"])


def _worst_first(rows: list[BlockedAction]) -> list[BlockedAction]:
    """Return at most `BLOCKED_MAX` rows, ordered so that the first row of each broker comes before
    the second row of any."""
    rank: Counter[int | None] = Counter()
    ranked = []
    for row in rows:
        ranked.append((rank[row.broker], row))
        rank[row.broker] += 1
    return [row for _, row in sorted(ranked, key=lambda one: one[0])][:BLOCKED_MAX]


def _configs(body: Object) -> list[str]:
    """Return the names of the ConfigMaps that a pod or template mounts."""
    volumes = (body.get("spec") or {}).get("volumes") or ()
    return [v["configMap"]["name"] for v in volumes if v.get("configMap")]
