"""The CRDs of the user kinds: schemas from the models, plus rules, columns and names.

`python -m plimsoll_operator.api.crds DIRECTORY` writes them; a test compares `crds/` with the
output of this module. Rules on `spec` use `has()`, so that removing a field does not evade them.
Their messages are sentences, because `kubectl apply` prints them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plimsoll_operator.api import GROUP, VERSION
from plimsoll_operator.api.certificates import CERTIFICATES_RULES
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.drill import DRILL_RULES
from plimsoll_operator.api.listeners import LISTENERS_RULES
from plimsoll_operator.api.logbroker import LogBrokerSpec, LogBrokerStatus
from plimsoll_operator.api.logcluster import LogClusterSpec
from plimsoll_operator.api.pools import POOLS_RULES
from plimsoll_operator.api.reassignment import ReassignmentSpec, ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceSpec, RebalanceStatus
from plimsoll_operator.api.rollout import ROLLOUT_RULES
from plimsoll_operator.api.schema import structural
from plimsoll_operator.api.token_issuers import TOKEN_ISSUERS_RULES
from plimsoll_operator.api.topic import TopicSpec, TopicStatus
from plimsoll_operator.api.user import UserSpec, UserStatus
from plimsoll_operator.api.verification import VerificationSpec, VerificationStatus
from plimsoll_operator.api.verification_schedule import (
    VerificationScheduleSpec,
    VerificationScheduleStatus,
)

Rule = tuple[str, str]
Column = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of custom resource, from which `render` makes a CRD. `columns`: (name, type, JSON
    path) of each column of `kubectl get`; `wide`: names of the columns that only `-o wide` shows.
    `rules`: (CEL, message) of each validation rule about `spec`; `object_rules`: the same about the
    whole object; `template_rules`: the same about `spec.template`."""

    name: str
    plural: str
    short: str
    spec: type
    status: type
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]
    description: str
    object_rules: tuple[Rule, ...] = ()
    scale: dict[str, str] | None = None
    selectable: tuple[str, ...] = ()
    template_rules: tuple[Rule, ...] = ()
    wide: frozenset[str] = frozenset()


def within_factor(at: str) -> str:
    """Return a CEL expression that is true unless the object at the path `at` states a
    minInSyncReplicas greater than its replicationFactor."""
    return (
        f"!has({at}.minInSyncReplicas) || !has({at}.replicationFactor) || "
        f"{at}.minInSyncReplicas <= {at}.replicationFactor"
    )


def same(field: str) -> str:
    """Return a CEL expression that is true if an update leaves the spec's `field` unchanged: the
    same value before and after, or absent in both."""
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


READY = ".status.conditions[?(@.type=='Ready')]"
READY_COLUMNS: tuple[Column, ...] = (
    ("Ready", "string", f"{READY}.status"),
    ("Reason", "string", f"{READY}.reason"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


# The BROKERS column for a status written before `active` existed.
_ACTIVE = ".status.brokers['active','ready']"
_SIZE = "quantity({}.spec.storage.size)"
LOG_CLUSTER = Kind(
    name="LogCluster",
    plural="logclusters",
    short="plc",
    spec=LogClusterSpec,
    status=LogClusterStatus,
    description="A cluster of brokers that serve the Kafka protocol.",
    rules=(
        (
            "has(self.storage.storageClassName) == has(oldSelf.storage.storageClassName) && "
            "(!has(self.storage.storageClassName) || "
            "self.storage.storageClassName == oldSelf.storage.storageClassName)",
            "storage.storageClassName is immutable: existing volumes cannot change their class.",
        ),
        (
            "!has(oldSelf.clusterId) || oldSelf.clusterId == '' || "
            "(has(self.clusterId) && self.clusterId == oldSelf.clusterId)",
            "clusterId is immutable once set: it identifies the owner of the volumes and the log.",
        ),
        (
            "!has(self.movement) || !has(self.movement.bytesPerSecond) || "
            "quantity(self.movement.bytesPerSecond).isGreaterThan(quantity('0'))",
            "movement.bytesPerSecond must be more than 0: a move without bandwidth never ends.",
        ),
        (
            "!has(self.topics) || !has(self.topics.defaults) || "
            f"({within_factor('self.topics.defaults')})",
            "topics.defaults.minInSyncReplicas is more than its replicationFactor: no client could "
            "write with acks=all.",
        ),
        (
            "!has(self.users) || !has(self.users.shared) || self.users.shared.all(s, "
            "(s.resource.type == 'Cluster') == !has(s.resource.name))",
            "Each entry of users.shared must name its resource, except for type Cluster.",
        ),
        *POOLS_RULES,
        *ROLLOUT_RULES,
        *LISTENERS_RULES,
        *TOKEN_ISSUERS_RULES,
        *CERTIFICATES_RULES,
    ),
    object_rules=(
        (
            f"{_SIZE.format('self')}.compareTo({_SIZE.format('oldSelf')}) >= 0 || "
            "(has(oldSelf.status) && has(oldSelf.status.volumeSize) && "
            f"{_SIZE.format('self')}.compareTo(quantity(oldSelf.status.volumeSize)) >= 0)",
            "storage.size never shrinks: a volume can grow, but not give space back. It may return "
            "to the size of the smallest volume: status.volumeSize.",
        ),
        (
            "self.metadata.name.size() <= 40 && !self.metadata.name.contains('.')",
            "A LogCluster's name must have at most 40 characters and no dots: it begins the names "
            "of its brokers, which are DNS labels.",
        ),
        (
            "(has(self.spec.clusterId) ? self.spec.clusterId : '') == "
            "(has(oldSelf.spec.clusterId) ? oldSelf.spec.clusterId : '') || "
            "!has(oldSelf.status) || !has(oldSelf.status.clusterId)",
            "clusterId cannot be set on a running cluster: its log has another id. Delete the "
            "object and apply it again with clusterId; volumes and log stay.",
        ),
    ),
    columns=(
        ("Version", "string", ".status.versions.pinned"),
        ("Brokers", "integer", _ACTIVE),
        ("Desired", "integer", ".status.brokers.desired"),
        ("Offline", "integer", ".status.partitions.offline"),
        ("UnderMinISR", "integer", ".status.partitions.underMinISR"),
        ("Blocked", "string", ".status.conditions[?(@.type=='Blocked')].status"),
        ("Doing", "string", ".status.conditions[?(@.type=='Reconciling')].reason"),
        *READY_COLUMNS,
        ("Metadata", "string", ".status.versions.metadata"),
        ("Inside", "string", ".status.certificates.internal.mode"),
    ),
    wide=frozenset({"Version", "Metadata", "Inside"}),
    scale={
        "specReplicasPath": ".spec.brokers.count",
        # One field by its name: Kubernetes accepts no other path here.
        "statusReplicasPath": ".status.brokers.active",
        "labelSelectorPath": ".status.selector",
    },
)


USER = Kind(
    name="User",
    plural="users",
    short="plu",
    spec=UserSpec,
    status=UserStatus,
    description="A user of a LogCluster: its login, rights and quotas.",
    rules=(
        ("self.clusterRef == oldSelf.clusterRef", "clusterRef is immutable."),
        (same("userName"), "userName is immutable: make another User instead."),
        (
            "!has(self.authentication) || "
            "[has(self.authentication.scram), has(self.authentication.serviceAccount), "
            "has(self.authentication.tls), has(self.authentication.tlsExternal)]"
            ".filter(one, one).size() == 1",
            "authentication must have at most one of scram, serviceAccount, tls and tlsExternal.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.serviceAccount) || "
            "!has(self.userName)",
            "userName is not allowed with serviceAccount: the ServiceAccount gives the name.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.tlsExternal) || "
            "!has(self.userName)",
            "userName is not allowed with tlsExternal: the certificate's subject is the name.",
        ),
        (
            "!has(self.acls) || self.acls.all(a, (a.resource.type == 'Cluster') == "
            "!has(a.resource.name))",
            "Each rule in acls must name its resource, except for type Cluster.",
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Principal", "string", ".status.principal"),
        ("Secret", "string", ".status.secret.name"),
        ("ACLs", "integer", ".status.acls"),
        *READY_COLUMNS,
    ),
    selectable=(".spec.clusterRef.name", ".spec.userName"),
)


TOPIC = Kind(
    name="Topic",
    plural="topics",
    short="plt",
    spec=TopicSpec,
    status=TopicStatus,
    description="A topic of a LogCluster.",
    rules=(
        (
            "self.clusterRef == oldSelf.clusterRef",
            "clusterRef is immutable: a topic's records cannot move to another cluster.",
        ),
        (same("topicName"), "topicName is immutable: make another Topic instead."),
        (
            "!has(oldSelf.partitions) || "
            "(has(self.partitions) && self.partitions >= oldSelf.partitions)",
            "partitions never decreases: the records of a removed partition would be lost.",
        ),
        (
            "(has(self.placement) && has(self.placement.assignment)) == "
            "(has(self.placement) && has(self.placement.strategy) && "
            "self.placement.strategy == 'Explicit')",
            "placement.assignment is required with strategy Explicit and not allowed otherwise.",
        ),
        (
            within_factor("self"),
            "minInSyncReplicas is more than replicationFactor: no client could "
            "write with acks=all.",
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Topic", "string", ".status.topicName"),
        ("Partitions", "integer", ".status.partitions"),
        ("RF", "integer", ".status.replicationFactor"),
        ("MinISR", "integer", ".status.minInSyncReplicas"),
        ("Offline", "integer", ".status.health.offline"),
        ("UnderMinISR", "integer", ".status.health.underMinISR"),
        *READY_COLUMNS,
    ),
    selectable=(".spec.clusterRef.name", ".spec.topicName"),
    wide=frozenset({"Topic"}),  # a name of 249 characters makes every line as long
)

REASSIGNMENT = Kind(
    name="Reassignment",
    plural="reassignments",
    short="plra",
    spec=ReassignmentSpec,
    status=ReassignmentStatus,
    description="Moves replicas to other brokers once; shows progress and can be cancelled.",
    rules=(
        ("self.clusterRef == oldSelf.clusterRef", "clusterRef is immutable."),
        (
            "self.moves == oldSelf.moves",
            "moves is immutable. Cancel this Reassignment and make another.",
        ),
        (same("onTargetLost"), "onTargetLost is immutable: make another Reassignment."),
        (
            "self.moves.all(m, [has(m.replicas), has(m.replicationFactor), has(m.awayFrom)]"
            ".exists_one(one, one))",
            "Each move must have exactly one of replicas, replicationFactor and awayFrom.",
        ),
        (
            "!has(self.throttle) || "
            "quantity(self.throttle.bytesPerSecond).isGreaterThan(quantity('0'))",
            "throttle.bytesPerSecond must be more than 0; to halt the moves, set paused: true.",
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Phase", "string", ".status.phase"),
        ("Done", "integer", ".status.partitions.done"),
        ("Total", "integer", ".status.partitions.total"),
        ("Left", "string", ".status.bytes.left"),
        ("ETA(s)", "integer", ".status.etaSeconds"),
        ("Reason", "string", f"{READY}.reason"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ),
    selectable=(".spec.clusterRef.name",),
)

REBALANCE = Kind(
    name="Rebalance",
    plural="rebalances",
    short="plrb",
    spec=RebalanceSpec,
    status=RebalanceStatus,
    description="A plan that balances, fills or drains brokers: shown, approved, carried out once.",
    rules=(
        ("self.clusterRef == oldSelf.clusterRef", "clusterRef is immutable."),
        ("self.mode == oldSelf.mode", "mode is immutable: make another Rebalance."),
        (same("brokers"), "brokers is immutable: make another Rebalance."),
        (
            "has(self.brokers) == (self.mode == 'AddBrokers' || self.mode == 'RemoveBrokers')",
            "brokers is required for AddBrokers and RemoveBrokers and not allowed for other modes.",
        ),
        (
            "!has(self.throttle) || "
            "quantity(self.throttle.bytesPerSecond).isGreaterThan(quantity('0'))",
            "throttle.bytesPerSecond must be more than 0; to halt the moves, set paused: true.",
        ),
        (
            "!has(self.limits) || !has(self.limits.maxBytes) || "
            "quantity(self.limits.maxBytes).isGreaterThan(quantity('0'))",
            "limits.maxBytes must be more than 0; to halt the moves, set paused: true.",
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Mode", "string", ".spec.mode"),
        ("Phase", "string", ".status.phase"),
        ("Moved", "integer", ".status.progress.replicasMoved"),
        ("Left", "integer", ".status.progress.partitionsLeft"),
        ("Bytes", "string", ".status.progress.bytesLeft"),
        ("ETA(s)", "integer", ".status.progress.etaSeconds"),
        ("Reason", "string", f"{READY}.reason"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ),
    selectable=(".spec.clusterRef.name",),
)

CONTINUOUS = "(has(self.mode) && self.mode == 'Continuous')"

VERIFICATION = Kind(
    name="Verification",
    plural="verifications",
    short="plv",
    spec=VerificationSpec,
    status=VerificationStatus,
    description="A workload that writes to a topic, and the check of every acknowledged record; or "
    "an audit of existing topics on every replica.",
    rules=(
        ("self == oldSelf", "spec is immutable: make another Verification for another run."),
        (
            "has(self.source) ? !has(self.topic) && !has(self.produce) : "
            "has(self.topic) && has(self.produce)",
            "spec must have either topic and produce, or source.",
        ),
        (
            "!has(self.source) || !has(self.verify) || !has(self.verify.checks) || "
            "self.verify.checks.all(c, c in "
            "['ReplicasEqual', 'Readable', 'NoGap', 'EpochsOrdered', 'MirrorEqual'])",
            "With spec.source, checks must be among ReplicasEqual, Readable, NoGap, EpochsOrdered "
            "and MirrorEqual.",
        ),
        (
            "has(self.source) || !has(self.verify) || !has(self.verify.checks) || "
            "!self.verify.checks.exists(c, "
            "c in ['ReplicasEqual', 'Readable', 'EpochsOrdered', 'MirrorEqual'])",
            "ReplicasEqual, Readable, EpochsOrdered and MirrorEqual need source.",
        ),
        (
            "!has(self.source) || !has(self.source.reads) || self.source.reads != 'Memory' || "
            "!has(self.verify) || !has(self.verify.checks) || "
            "!('ReplicasEqual' in self.verify.checks)",
            "ReplicasEqual needs source.reads: Disk: only leaders serve from memory.",
        ),
        (
            "!has(self.source) || !has(self.runner) || !has(self.runner.executors) || "
            "self.runner.executors == 0",
            "An audit runs in the driver's pod: leave runner.executors out.",
        ),
        (
            "!has(self.produce) || !has(self.produce.idempotent) || !self.produce.idempotent || "
            "!has(self.produce.acks) || self.produce.acks == 'All'",
            "produce.idempotent needs produce.acks: All; leave idempotent out, or set it to false.",
        ),
        (
            # The driver's account may make pods meanwhile.
            "!has(self.runner) || !has(self.runner.image) || !has(self.runner.executors) || "
            "self.runner.executors == 0",
            "runner.executors runs only the operator's own image; leave runner.image out.",
        ),
        (
            f"!has(self.produce) || {CONTINUOUS} || "
            "has(self.produce.records) != has(self.produce.load)",
            "produce must have either records or load.",
        ),
        (
            f"!{CONTINUOUS} || (has(self.produce) && has(self.produce.recordsPerSecond) && "
            "!has(self.produce.records) && !has(self.produce.load))",
            "mode Continuous writes without an end: it needs produce.recordsPerSecond, without "
            "records and load.",
        ),
        (
            f"!{CONTINUOUS} || !has(self.produce) || "
            "((!has(self.produce.acks) || self.produce.acks == 'All') && "
            "(!has(self.produce.idempotent) || self.produce.idempotent))",
            "mode Continuous needs acks: All and idempotent producers.",
        ),
        (
            f"!{CONTINUOUS} || !has(self.evidence) || !has(self.evidence.resume)",
            "mode Continuous cannot resume another run: leave evidence.resume out.",
        ),
        (
            f"!has(self.window) || ({CONTINUOUS} && self.window.matches("
            "'^([1-5][0-9]s|[6-9][0-9]s|[1-9][0-9]{2}s|[1-5]?[0-9]m|60m|1h)$'))",
            "window must be from 10s to 1h, and is allowed only in mode Continuous.",
        ),
        (
            "!has(self.produce) || !has(self.produce.load) || !has(self.produce.recordsPerSecond)",
            "produce.load states the rate: leave produce.recordsPerSecond out.",
        ),
        (
            "!has(self.produce) || !has(self.produce.load) || "
            "has(self.produce.load.profile) != has(self.produce.load.findMaxRate)",
            "produce.load must have either profile or findMaxRate.",
        ),
        (
            "!has(self.produce) || !has(self.produce.load) || "
            "!has(self.produce.load.findMaxRate) || "
            "!has(self.runner) || !has(self.runner.executors) || self.runner.executors == 0",
            "produce.load.findMaxRate is allowed only with runner.executors: 0.",
        ),
        (
            "!has(self.produce) || !has(self.produce.load) || !has(self.produce.load.profile) || "
            "self.produce.load.profile.exists(s, s.recordsPerSecond > 0)",
            "produce.load.profile needs a step with recordsPerSecond above 0.",
        ),
        *DRILL_RULES,
        (
            "!has(self.evidence) || has(self.evidence.s3) != "
            "has(self.evidence.persistentVolumeClaim)",
            "evidence needs either persistentVolumeClaim or s3.",
        ),
        (
            "!has(self.evidence) || has(self.produce)",
            "evidence is allowed only with produce: an audit writes no records that it could list.",
        ),
    ),
    object_rules=(
        (
            # Objects older than this rule stay valid: they have a status.
            "self.metadata.name.size() <= 56 || has(self.status)",
            "A Verification's name must have at most 56 characters: its Job is NAME-driver, whose "
            "name is a label of its pod.",
        ),
    ),
    columns=(
        ("Topic", "string", ".spec.topic"),
        ("Phase", "string", ".status.phase"),
        ("Verdict", "string", ".status.verdict"),
        ("Acknowledged", "string", ".status.continuous.acknowledged"),
        ("Acked", "integer", ".status.counts.acked"),
        ("Lost", "integer", ".status.counts.lost"),
        ("Duplicated", "integer", ".status.counts.duplicated"),
        ("Stall(ms)", "number", ".status.timing.longestStallMilliseconds"),
        *READY_COLUMNS,
    ),
)

VERIFICATION_SCHEDULE = Kind(
    name="VerificationSchedule",
    plural="verificationschedules",
    short="plvs",
    spec=VerificationScheduleSpec,
    status=VerificationScheduleStatus,
    description="Starts a Verification at stated times, and keeps the verdicts.",
    rules=(
        (
            "self.template.clusterRef == oldSelf.template.clusterRef",
            "template.clusterRef is immutable: make another VerificationSchedule.",
        ),
    ),
    template_rules=(
        *(rule for rule in VERIFICATION.rules if "oldSelf" not in rule[0]),
        (
            f"!{CONTINUOUS}",
            "template.mode must be Once: a continuous run has no end that a schedule could await.",
        ),
        (
            "!has(self.produce) || (has(self.allowExisting) && self.allowExisting)",
            "template.allowExisting must be true: the topic holds the records of earlier runs.",
        ),
    ),
    object_rules=(
        (
            "self.metadata.name.size() <= 42",
            "A VerificationSchedule's name must have at most 42 characters: it begins the names of "
            "its Verifications.",
        ),
    ),
    columns=(
        ("Schedule", "string", ".spec.schedule"),
        ("Zone", "string", ".spec.timeZone"),
        ("Suspended", "boolean", ".spec.suspend"),
        ("Last", "date", ".status.runs[0].dueTime"),
        ("Next", "string", ".status.nextScheduleTime"),
        ("Verdict", "string", ".status.runs[0].verdict"),
        ("Passed", "integer", ".status.trend.passed"),
        ("Violated", "integer", ".status.trend.violated"),
        *READY_COLUMNS,
    ),
)

LOG_BROKER = Kind(
    name="LogBroker",
    plural="logbrokers",
    short="plb",
    spec=LogBrokerSpec,
    status=LogBrokerStatus,
    description="A broker of a LogCluster. The operator writes this object.",
    rules=(
        (
            "self == oldSelf",
            ("spec is immutable: the operator makes one LogBroker for each broker."),
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Broker", "integer", ".spec.brokerId"),
        ("State", "string", ".status.state"),
        ("Pool", "string", ".status.pool"),
        ("Rack", "string", ".status.rack"),
        ("Leaders", "integer", ".status.leaders"),
        ("Replicas", "integer", ".status.replicas"),
        ("Margin", "integer", ".status.lowestISRMargin"),
        ("Free", "string", ".status.disk.free"),
        ("Behind", "integer", ".status.backlog.records"),
        *READY_COLUMNS,
        ("Node", "string", ".status.node"),
        ("Revision", "string", ".status.revision"),
        ("Fenced", "date", ".status.fenced.since"),
    ),
    selectable=(".spec.clusterRef.name",),
    wide=frozenset({"Pool", "Node", "Revision", "Fenced"}),
)

KINDS = (
    LOG_CLUSTER,
    TOPIC,
    REASSIGNMENT,
    REBALANCE,
    VERIFICATION,
    VERIFICATION_SCHEDULE,
    LOG_BROKER,
    USER,
)


def spec_schema(kind: Kind) -> dict[str, Any]:
    """Return the OpenAPI schema of the kind's `spec`, with its validation rules."""
    schema = structural(kind.spec)
    schema["x-kubernetes-validations"] = _rules(kind.rules)
    if kind.template_rules:
        template = schema["properties"]["template"]
        template["x-kubernetes-validations"] = _rules(kind.template_rules)
    return schema


def status_schema(kind: Kind) -> dict[str, Any]:
    """Return the OpenAPI schema of the kind's `status`. No field of it is required but those that
    `metav1.Condition` requires, so that an operator older than the CRD (during an upgrade or a
    rollback) can still write the status."""
    schema = structural(kind.status)
    conditions = schema["properties"].pop("conditions")
    _lift_requirements(schema)
    schema["properties"]["conditions"] = conditions
    return schema


def _lift_requirements(schema: dict[str, Any]) -> None:
    schema.pop("required", None)
    for field in schema.get("properties", {}).values():
        _lift_requirements(field)
    if "items" in schema:
        _lift_requirements(schema["items"])


def object_schema(kind: Kind) -> dict[str, Any]:
    """Return the OpenAPI schema of a whole object of the kind: spec, status and the rules about
    both."""
    schema: dict[str, Any] = {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(kind),
            "status": status_schema(kind),
        },
    }
    if kind.object_rules:
        schema["x-kubernetes-validations"] = _rules(kind.object_rules)
    return schema


def _rules(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    return [{"rule": rule, "message": message} for rule, message in rules]


def crd(kind: Kind) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale:
        subresources["scale"] = kind.scale
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": object_schema(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": [
            {"name": name, "type": type_, "jsonPath": path}
            | ({"priority": 1} if name in kind.wide else {})
            for name, type_, path in kind.columns
        ],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["plimsoll"],
            },
            "versions": [version],
        },
    }


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(kind: Kind) -> str:
    """Format the CRD as YAML text."""
    return yaml.dump(crd(kind), Dumper=_Plain, sort_keys=False, width=96)


def file_name(kind: Kind) -> str:
    """Return the CRD's file name under `crds/`."""
    return f"{GROUP}_{kind.plural}.yaml"


def write(directory: Path) -> None:
    """Write the YAML of every CRD of the product into `directory`."""
    for kind in KINDS:
        (directory / file_name(kind)).write_text(render(kind))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
