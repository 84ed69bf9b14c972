"""An administrator's applied objects: custom resources in the simulated API server, and edits.

An administrator's requests always succeed, and no other client writes these specs, so a spec that
is read here is the wanted state. Called by the world, faults, scenarios and the liveness checker.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.model import Topic as CommittedTopic
from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.logcluster import Brokers, LogCluster, LogClusterSpec
from plimsoll_operator.api.pools import IDS_OF_A_POOL, Pool, PoolCapacity, PoolStorage
from plimsoll_operator.api.reassignment import Reassignment, ReassignmentSpec
from plimsoll_operator.api.rebalance import Rebalance, RebalanceSpec
from plimsoll_operator.api.rollout import Rollout
from plimsoll_operator.api.topic import Topic, TopicSpec
from plimsoll_operator.api.user import User, UserSpec
from plimsoll_operator.api.verification import Verification, VerificationSpec
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import target
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.writes import RequestTarget
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    LOG_CLUSTERS,
    REASSIGNMENTS,
    REBALANCES,
    SECRETS,
    TOPICS,
    USERS,
    VERIFICATIONS,
    VOLUME_CLAIMS,
    Kind,
)
from plimsoll_operator.reconcile.topic.topic_declaration import declare

Spec = LogClusterSpec | TopicSpec | ReassignmentSpec | RebalanceSpec | VerificationSpec | UserSpec
Read = LogCluster | Topic | Reassignment | Rebalance | Verification | User
MODELS: dict[Kind, Any] = {
    LOG_CLUSTERS: LogCluster,
    TOPICS: Topic,
    REASSIGNMENTS: Reassignment,
    REBALANCES: Rebalance,
    VERIFICATIONS: Verification,
    USERS: User,
}
IMAGE = "broker"
"""Name of the brokers' image. Scenarios call its tag a revision."""


class AppliedObjects:
    """One LogCluster, and all objects that refer to it, in one namespace."""

    def __init__(self, server: MemoryApiServer, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        # Objects that were deleted, by uid: their names.
        self.gone: dict[str, str] = {}
        # The number of objects of each kind ever made, so that each name is used once.
        self.made: dict[Kind, int] = {}
        # Brokers that the spec did not ask for at some time: a decision may be based on that spec.
        self.once_unwanted: set[BrokerId] = set()
        # By a deleted Topic's uid: the other Topics that declared its topic then.
        self._beside: dict[str, frozenset[str]] = {}
        self._server = server
        self._read: dict[tuple[Kind, str], tuple[StoredObject, Any]] = {}

    # --- any kind ---------------------------------------------------------------------------------

    def create(self, kind: Kind, name: str, spec: Spec) -> None:
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": _plain(spec),
        }
        self.made[kind] = self.made.get(kind, 0) + 1
        self._server.writes.create(self._target(kind, None), body, dry_run=False)

    def edit(self, kind: Kind, name: str, **changes: object) -> None:
        """Change fields of an object's spec."""
        body = self._stored(kind, name).body
        spec = msgspec.structs.replace(self.get(kind, name).spec, **changes)
        new = {**body, "spec": _plain(spec)}
        self._server.writes.replace(self._target(kind, name), new, dry_run=False)

    def drop_status(self, kind: Kind, name: str) -> None:
        """Remove an object's status, as if the object had been restored from a backup."""
        stored = self._stored(kind, name)
        where = target(self._server, kind, self.namespace, name, status=True)
        body = {field: value for field, value in stored.body.items() if field != "status"}
        self._server.writes.replace(where, body, dry_run=False)

    @property
    def server_ms(self) -> int:
        """Return the API server's clock, in milliseconds since 1970."""
        return self._server.now_ms()

    def annotate(self, kind: Kind, name: str, key: str, value: str) -> None:
        body = self._stored(kind, name).body
        found = {**(body["metadata"].get("annotations") or {}), key: value}
        new = {**body, "metadata": {**body["metadata"], "annotations": found}}
        self._server.writes.replace(self._target(kind, name), new, dry_run=False)

    def put_secret(self, name: str, data: dict[str, bytes]) -> None:
        """Create or replace a Secret of the administrator."""
        text = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self._put(SECRETS, name, text)

    def put_config_map(self, name: str, data: dict[str, str]) -> None:
        """Create or replace a ConfigMap."""
        self._put(CONFIG_MAPS, name, data)

    def _put(self, kind: Kind, name: str, data: dict[str, str]) -> None:
        body: Object = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "data": data,
        }
        target = self._target(kind, name)
        if self._server.store.get(target.resource, target.key) is None:
            self._server.writes.create(self._target(kind, None), body, dry_run=False)
        else:
            self._server.writes.replace(target, body, dry_run=False)

    def delete(self, kind: Kind, name: str) -> None:
        uid = self.uid(kind, name)
        self.gone[uid] = name
        if kind is TOPICS:
            declared = self.get(TOPICS, name).topic_name
            others = [one for one in self.names(TOPICS) if one != name]
            self._beside[uid] = frozenset(
                self.uid(TOPICS, one)
                for one in others
                if self.get(TOPICS, one).topic_name == declared
            )
        self._server.writes.delete(self._target(kind, name), {}, dry_run=False)

    def recreate(self) -> None:
        """Delete every object of the namespace but the volume claims, metadata log included, and
        apply the administrator's objects again, under new uids. The claims' pods end meanwhile."""
        store = self._server.store
        bodies = [(kind, self.body(kind, name)) for kind in MODELS for name in self.names(kind)]
        for _, body in bodies:
            self.gone[body["metadata"]["uid"]] = body["metadata"]["name"]
        for resource in store.resources.values():
            for stored in list(store.table(resource).values()):
                if stored.key[0] == self.namespace and resource.kind != VOLUME_CLAIMS:
                    store.remove(stored)
        for kind, body in bodies:
            kept = {key: body[key] for key in ("apiVersion", "kind", "spec")}
            again = {**kept, "metadata": {"name": body["metadata"]["name"]}}
            self._server.writes.create(self._target(kind, None), again, dry_run=False)

    def get(self, kind: Kind, name: str) -> Any:
        """Return an object, decoded as its model."""
        stored = self._stored(kind, name)
        known = self._read.get((kind, name))
        if known is None or known[0] is not stored:
            known = self._read[kind, name] = (stored, from_object(stored.body, MODELS[kind]))
        return known[1]

    def body(self, kind: Kind, name: str) -> Object:
        """Return an object as it is stored."""
        return self._stored(kind, name).body

    def names(self, kind: Kind) -> list[str]:
        resource = self._server.store.resources[kind.path()]
        return sorted(name for _, name in self._server.store.table(resource))

    def uid(self, kind: Kind, name: str) -> str:
        return str(self._stored(kind, name).metadata["uid"])

    def _stored(self, kind: Kind, name: str) -> StoredObject:
        return self._server.writes.existing(self._target(kind, name))

    def _target(self, kind: Kind, name: str | None) -> RequestTarget:
        return target(self._server, kind, self.namespace, name)

    # --- the LogCluster ---------------------------------------------------------------------------

    @property
    def cluster(self) -> LogCluster:
        found: LogCluster = self.get(LOG_CLUSTERS, self.name)
        return found

    def set_members(self, wanted: tuple[BrokerId, ...], ids: Sequence[int]) -> None:
        """Set the wanted members. `ids`: all ids that brokers may have; ids that are not wanted are
        excluded in the spec. A pool without wanted members is taken off the list."""
        self.once_unwanted.update(b for b in map(BrokerId, ids) if b not in wanted)
        others = excluded_ids(wanted, ids) or None
        if self.cluster.spec.pools:
            brokers, pools = Brokers(excluded_ids=others), pools_of(wanted)
            known = self.cluster.spec.rollout
            rollout = None if known is None else replace(known, order=rollout_of(pools).order)
            self.edit(LOG_CLUSTERS, self.name, brokers=brokers, pools=pools, rollout=rollout)
            return
        brokers = Brokers(count=len(wanted), excluded_ids=others)
        self.edit(LOG_CLUSTERS, self.name, brokers=brokers)

    def set_rollout(self, pause_s: int | None) -> None:
        """Let the second pool roll first; with None let all pools roll together."""
        pools = self.cluster.spec.pools
        rollout = rollout_of(pools, pause_s) if pools and pause_s is not None else None
        self.edit(LOG_CLUSTERS, self.name, rollout=rollout)

    @property
    def members(self) -> tuple[BrokerId, ...]:
        """Return the ids of the brokers that the spec asks for."""
        cluster = self.cluster
        return next_members((), cluster.id_ranges, cluster.excluded_ids)

    @property
    def image_tag(self) -> str:
        """Return the tag of the wanted image of the brokers; empty at first."""
        return tag_of(self.cluster.spec.image or IMAGE)

    def set_image_tag(self, tag: str) -> None:
        self.edit(LOG_CLUSTERS, self.name, image=f"{IMAGE}:{tag}" if tag else None)

    # --- the others -------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, DeclareTopic]:
        """Return each Topic's declaration to the controller, by the object's name."""
        found = {name: self.declared(name) for name in self.names(TOPICS)}
        return {name: one for name, one in found.items() if one is not None}

    def is_declared(self, topic: CommittedTopic) -> bool:
        """Return True if an object declares the topic, and did so already when the object to which
        the topic was last bound was deleted."""
        beside = self._beside.get(topic.object.uid if topic.object else "", frozenset())
        return any(self.uid(TOPICS, name) in beside for name in self.names(TOPICS))

    def declared(self, name: str) -> DeclareTopic | None:
        """Return a Topic's declaration to the controller; None if there is no such Topic."""
        if name not in self.names(TOPICS):
            return None
        wanted = declare(self.get(TOPICS, name), self.cluster)
        assert not isinstance(wanted, Refusal), wanted
        return wanted

    def raise_partitions(self, image: ClusterImage) -> None:
        """Correct each Topic that states fewer partitions than its topic has, as its status asks.
        An etcd that went back restores such Topics."""
        for name, wanted in self.topics.items():
            topic_id = image.topic_ids.get(wanted.topic_name)
            has = 0 if topic_id is None else image.topics[topic_id].partitions
            if has > wanted.partitions:
                self.edit(TOPICS, name, partitions=has)

    @property
    def reassignments(self) -> dict[str, Reassignment]:
        return {name: self.get(REASSIGNMENTS, name) for name in self.names(REASSIGNMENTS)}

    @property
    def rebalances(self) -> dict[str, Rebalance]:
        """Return the Rebalances that the administrator created, without the operator's own."""
        found = {name: self.get(REBALANCES, name) for name in self.names(REBALANCES)}
        return {name: one for name, one in found.items() if not one.metadata.labels}


def _plain(spec: Spec) -> Object:
    """Return the spec as JSON, as a client sends it."""
    found: Object = msgspec.json.decode(msgspec.json.encode(spec))
    return found


POOLS = (
    Pool(
        name="old",
        first_id=0,
        brokers=0,
        capacity=PoolCapacity(bytes_in_per_second="1Gi", bytes_out_per_second="1Gi"),
    ),
    Pool(
        name="new",
        first_id=IDS_OF_A_POOL,
        brokers=0,
        storage=PoolStorage(size="2Gi"),
        capacity=PoolCapacity(bytes_in_per_second="2Gi", bytes_out_per_second="2Gi"),
        config={"num.replica.fetchers": 2},
    ),
)
"""The pools of a cluster with pools. Their brokers run different revisions."""


def pools_of(wanted: Sequence[int]) -> tuple[Pool, ...]:
    """Return the pools that have wanted members, each with the number of them."""
    counts = ((pool, sum(b in pool.ids for b in wanted)) for pool in POOLS)
    return tuple(replace(pool, brokers=count) for pool, count in counts if count)


def rollout_of(pools: Sequence[Pool], pause_s: int = 0) -> Rollout:
    """Return the order in which the last of the pools rolls first."""
    pause = f"{pause_s}s" if pause_s else None
    return Rollout(order=(pools[-1].name,), pause_after_first=pause)


def excluded_ids(wanted: Sequence[int], ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids of each pool, up to the highest in `ids`, that are not wanted: the brokers of
    the pool then get the wanted ones."""
    stops = {one // IDS_OF_A_POOL: one + 1 for one in sorted(ids)}
    numbers = (range(at * IDS_OF_A_POOL, stop) for at, stop in sorted(stops.items()))
    return tuple(n for each in numbers for n in each if n not in wanted)


def tag_of(image: str) -> str:
    return image.partition(":")[2]
