"""Starts a local cluster: applies the objects of the files, and waits until all are reconciled.

The LogCluster comes first, the other objects once its brokers are active. An object that is refused
after that ends the start, with the sentence of its status. Called by `cluster`. Log lines go to the
terminal (warnings only, unless more is asked for) and to a bounded file, from Info on or from
PLIMSOLL_LOG_LEVEL on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.cluster.listener_peers import endpoint
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Done, Refused, SetMembers
from plimsoll_operator.api.cluster_ids import cluster_id as cluster_id_of
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.api.listeners import committed, without_addresses
from plimsoll_operator.api.load import Resource, Unreadable, from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.process_parts import Led, Parts
from plimsoll_operator.local import earlier_run
from plimsoll_operator.local.broker_pods import BrokerPods
from plimsoll_operator.local.documents import KIND_OF, Documents, ignored, local_cluster
from plimsoll_operator.local.kept_objects import LocalObjects, NotApplied, drop_undeclared
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.topic.topic_declaration import named_leaders
from plimsoll_operator.reconcile.topic.topic_memory import topics_of

logger = logging.getLogger("plimsoll.local")

FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
FILE_BYTES_MAX = 10 << 20
EARLIER_FILES = 1


def log_to_terminal(*, verbose: bool) -> None:
    """Log to standard error: warnings, and with `verbose` also Info."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    handler.setFormatter(FORMAT)
    level = os.environ.get("PLIMSOLL_LOG_LEVEL", "info").upper()
    logging.basicConfig(level=level, handlers=[handler])


def log_to_file(path: Path) -> None:
    """Log to a rotated file, besides standard error. Raises OSError if it cannot be opened."""
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES_MAX, backupCount=EARLIER_FILES, encoding="utf-8"
    )
    handler.setFormatter(FORMAT)
    logging.getLogger().addHandler(handler)


START_MS_MAX = 120_000
LOOK_MS = 20
REFUSED_MS = 500
"""Milliseconds that a refusal of a topic must last to end the start. An earlier refusal may date
from before the last broker became active."""
NAMING_MS_MAX = 10_000
"""Milliseconds that a refusal must last if the topic's spec names leaders. A broker reports its
logs once a second, and is refused as leader before its first report."""


class CannotRun(Exception):
    """Raised if the local cluster cannot be started. The message is a sentence for the user."""


class Start:
    """One start of a local cluster, up to the point where it can be used. Call `prepare` before the
    operator runs, then `led` and `run`, each once."""

    def __init__(
        self,
        parts: Parts,
        objects: LocalObjects,
        pods: BrokerPods,
        documents: Documents,
        image: ClusterImage,
        confirmed: str = "",
    ) -> None:
        """Create a start, which has done nothing yet. `image`: the state in the directory's
        metadata log before this start. `confirmed`: the history of the metadata that the user has
        confirmed to restore."""
        self._parts = parts
        self._objects = objects
        self._pods = pods
        self._documents = documents
        self._image = image
        self._confirmed = confirmed
        self._key = documents.cluster.key
        # True if the LogCluster's spec differs from that of the last start.
        self._is_edited = True

    def prepare(self, cluster_id: UUID) -> None:
        """Create or update the objects that must exist when the operator starts: the LogCluster,
        and the declared topics of the metadata log. Remove other LogClusters and the objects that
        run once, schedules and Users that no file declares any more. If the LogCluster was edited,
        also remove the StatefulSets and pods of its brokers. Raises CannotRun if an object is
        invalid."""
        cluster = local_cluster(self._documents.cluster)
        logger.info(
            "the local cluster checks specs against the CRD schemas, but not against their CEL "
            "rules (x-kubernetes-validations): Kubernetes may reject a spec that is accepted here"
        )
        if words := ignored(cluster):
            logger.warning("LogCluster %s in a local cluster: %s", cluster.metadata.name, words)
        for listener in cluster.listeners:
            if listener.allowed_namespaces is not None:
                logger.warning(
                    "Listener %s: allowedNamespaces has no effect in a local cluster; every "
                    "user of this machine can connect",
                    listener.name,
                )
        annotations = dict(cluster.metadata.annotations)
        if self._confirmed:
            annotations[RESTORE_METADATA] = self._confirmed
        meta = replace(cluster.metadata, uid=str(cluster_id), annotations=annotations)
        cluster = replace(cluster, metadata=meta)
        objects = self._objects
        drop_undeclared(objects, self._documents)
        known = found(objects.server, resources.LOG_CLUSTERS, *self._key)
        if known is not None and _cluster_id(known) != cluster_id:
            # The stored object was recreated: its cluster is not the one of this directory.
            objects.server.store.remove(known)
            known = None
        before = known.metadata["generation"] if known else 0
        try:
            self._is_edited = objects.apply(cluster).metadata["generation"] != before
            for topic in earlier_run.declared_topics(self._image, cluster):
                if found(objects.server, resources.TOPICS, *topic.key) is None:
                    objects.apply(topic)
        except NotApplied as error:
            raise CannotRun(str(error)) from error
        if self._is_edited:
            objects.drop_brokers()

    async def led(self) -> Led:
        """Wait until this process leads the cluster, and return the leader. From then on no other
        process uses the directory. Raises CannotRun after `START_MS_MAX`, or if the cluster cannot
        be led."""
        try:
            async with asyncio.timeout(START_MS_MAX / 1000):
                leader = await self._led()
        except TimeoutError:
            raise self._too_late() from None
        # No broker runs yet. A log that was just restored shows former processes as active.
        self._image = leader.controller.image
        return leader

    async def run(self) -> tuple[BrokerId, ...]:
        """Wait until all brokers are active, apply the other objects of the files, and wait until
        all are reconciled. Return the ids of the cluster's brokers. Raises CannotRun if that fails,
        or takes longer than `START_MS_MAX`."""
        try:
            async with asyncio.timeout(START_MS_MAX / 1000):
                controller = (await self._led()).controller
                await self._members(controller)
                await self._all_unfenced()
                await self._listeners_open()
                await self._inside_closed()
                await self._settled()
                await self._apply()
                return controller.image.members
        except TimeoutError:
            raise self._too_late() from None

    def _too_late(self) -> CannotRun:
        return CannotRun(
            f"the local cluster was not ready after {START_MS_MAX // 1000} s; find the cause in "
            f"the logs in {self._objects.layout.logs}"
        )

    # --- brokers ----------------------------------------------------------------------------------

    async def _led(self) -> Led:
        """Wait until the cluster's controller is active in this process, and return the cluster's
        leader."""
        while True:
            leader = self._parts.leaders.get(self._key)
            if leader is not None and leader.controller.active:
                return leader
            await self._look_again()

    async def _members(self, controller: Controller) -> None:
        """If the LogCluster's file was edited, commit the set of broker ids that it now asks for.
        Brokers that hold replicas stay members; the operator then empties them, as after the same
        edit of a running cluster. If the file was not edited, do nothing, since a change made with
        `kubectl` stays in force."""
        while True:
            cluster = self._documents.cluster
            members = controller.image.members
            wanted = next_members(members, cluster.id_ranges, cluster.excluded_ids)
            if members and (wanted == members or not self._is_edited):
                return
            answer = await controller.request(SetMembers(broker_ids=wanted))
            if isinstance(answer, Refused) and answer.known_reason is Reason.BrokerHoldsReplicas:
                wanted = tuple(sorted({*members, *wanted}))
                logger.info(
                    "brokers that the LogCluster's file no longer asks for stay until the "
                    "operator has moved their replicas: %s",
                    answer.message,
                )
                if wanted == members:
                    return
                answer = await controller.request(SetMembers(broker_ids=wanted))
            if isinstance(answer, Done):
                return
            if isinstance(answer, Refused) and answer.known_reason is not Reason.NotController:
                raise CannotRun(answer.message)
            await self._look_again()

    async def _all_unfenced(self) -> None:
        """Wait until every member is active with a broker epoch other than in the log before this
        start: after a crash that log still shows the former processes as active. A broker that the
        cluster removes meanwhile is not waited for any more."""
        earlier_epochs = {id_: b.broker_epoch for id_, b in self._image.brokers.items()}
        while True:
            image = (await self._led()).controller.image
            brokers = image.brokers
            if all(
                b in brokers
                and brokers[b].active
                and brokers[b].broker_epoch != earlier_epochs.get(b)
                for b in image.members
            ):
                return
            await self._look_again()

    async def _listeners_open(self) -> None:
        """If the LogCluster was edited, wait until every active broker has opened every declared
        listener; an external listener counts only where it has an address. Raises CannotRun if a
        listener cannot be opened."""
        wanted = committed(self._documents.cluster.listeners)
        while wanted and self._is_edited:
            leader = await self._led()
            cause = leader.term.shown.stall_causes.get(StallSource.LISTENERS)
            if cause is not None:
                raise CannotRun(cause.message)
            image = leader.controller.image
            brokers = [b for b in image.brokers.values() if b.active and b.id in image.members]
            declared = tuple(without_addresses(one) for one in image.listeners)
            opened = (
                endpoint(broker, one.name)
                for broker in brokers
                for one in image.listeners
                if not one.external or one.advertised_of(broker.id) is not None
            )
            if declared == wanted and None not in set(opened):
                return
            await self._look_again()

    async def _inside_closed(self) -> None:
        """Wait until the committed mode of TLS between brokers and controller is the declared one.
        Raises CannotRun if it cannot be reached."""
        wanted = local_cluster(self._documents.cluster).stated_inside
        while (leader := await self._led()).controller.image.inside.mode is not wanted:
            cause = leader.term.shown.stall_causes.get(StallSource.INSIDE)
            if cause is not None:
                raise CannotRun(cause.message)
            await self._look_again()

    async def _look_again(self) -> None:
        """Sleep for `LOOK_MS`, before a condition is checked again. Raises CannotRun if it can no
        longer come true: the cluster is stalled, or a broker has exited for good."""
        stalled = self._stalled()
        if stalled is not None:
            raise CannotRun(stalled)
        for process in self._pods.ended:
            raise CannotRun(
                f"the local cluster cannot run, because broker {process.broker_id} exited and is "
                f"not started again: {process.why}"
            )
        await asyncio.sleep(LOOK_MS / 1000)

    def _stalled(self) -> str | None:
        """Return the reason why the cluster cannot serve clients until the user acts; None if there
        is none."""
        leader = self._parts.leaders.get(self._key)
        if leader is not None:
            controller = leader.controller
            if controller.stalled is not None and not controller.restores:
                # The status that follows also says what the user may confirm.
                return None if controller.not_restored else controller.stalled.message
            causes = leader.term.shown.stall_causes.values()
            return next((one.message for one in causes if not (one.serves or one.waits)), None)
        stored = found(self._objects.server, resources.LOG_CLUSTERS, *self._key)
        status = {} if stored is None else stored.body.get("status") or {}
        for shown in status.get("conditions") or ():
            if shown["type"] == "Stalled" and shown["status"] == "True":
                return str(shown["message"]) + _ways_out(status.get("metadataRestore") or {})
        return None

    # --- everything else --------------------------------------------------------------------------

    async def _settled(self) -> None:
        """Wait until the controller has dropped the moves of Reassignments and Rebalances that no
        longer exist, because such moves would block changes of their topics."""
        while True:
            leader = await self._led()
            image = leader.controller.image
            uids = self._objects.server.store.uids
            rows = [*image.reassignments.values(), *image.rebalances.values()]
            if all(row.object.uid in uids for row in rows):
                return
            await self._look_again()

    async def _apply(self) -> None:
        """Apply the objects of the files and wait for their reconciliation: topics first, then the
        objects that may refer to them. Objects of another LogCluster are applied and not waited
        for. Raises CannotRun if an object is invalid or a topic is refused."""
        topics = [one for one in self._documents.others if isinstance(one, Topic)]
        for topic, generation in zip(topics, self._applied(topics), strict=True):
            await self._topic(topic, generation)
        others = [one for one in self._documents.others if not isinstance(one, Topic)]
        for other, generation in zip(others, self._applied(others), strict=True):
            if other.cluster_key == self._key:
                await self._looked_at(KIND_OF[type(other).__name__], other.key, generation)

    def _applied(self, resources: Sequence[Resource]) -> list[int]:
        """Apply objects and return the `metadata.generation` of each. Raises CannotRun if one is
        invalid."""
        try:
            return [self._objects.apply(one).metadata["generation"] for one in resources]
        except NotApplied as error:
            raise CannotRun(str(error)) from error

    async def _topic(self, topic: Topic, generation: int) -> None:
        loop = asyncio.get_running_loop()
        patience_ms = REFUSED_MS if named_leaders(topic) is None else NAMING_MS_MAX
        deadline = loop.time() + patience_ms / 1000
        while True:
            known = topics_of((await self._led()).term)
            refusal: Condition | None = known.refusals.get(topic.key)
            if known.observed.get(topic.key) == generation:
                if refusal is None:
                    return
                if loop.time() >= deadline:
                    raise CannotRun(f"Topic {topic.metadata.name} is refused: {refusal.message}")
            await self._look_again()

    async def _looked_at(self, kind: resources.Kind, key: Key, generation: int) -> None:
        """Wait until the object's `status.observedGeneration` is `generation`."""
        while True:
            stored = found(self._objects.server, kind, *key)
            status = {} if stored is None else stored.body.get("status") or {}
            if status.get("observedGeneration") == generation:
                return
            await self._look_again()


def _cluster_id(stored: StoredObject) -> UUID | None:
    """Return the cluster id of a stored LogCluster; None if the object cannot be decoded."""
    try:
        return cluster_id_of(from_object(stored.body, LogCluster))
    except Unreadable:
        return None


def _ways_out(offered: Object) -> str:
    """Return a sentence for each history that the user may confirm, with what it gives up.
    `offered`: `metadataRestore` of the LogCluster's status."""
    return "".join(
        f" To {_history(one)} up to offset "
        f"{one['endOffset']}, and give up "
        f"{'; '.join(one.get('givesUp') or ['nothing that is known'])}: "
        f"start again with --restore-metadata {one['value']}."
        for one in offered.get("choices") or ()
    )


def _history(one: Object) -> str:
    if one["keepsLog"]:
        return "keep the log"
    return "restore the backup" if one.get("fromBackup") else "restore the copies"
