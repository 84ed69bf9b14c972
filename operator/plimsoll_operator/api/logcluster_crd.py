"""The CRD of `LogCluster`: its rules, columns and names. Assembled by `crds`."""

from __future__ import annotations

from plimsoll_operator.api.certificates import CERTIFICATES_RULES
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.api.crd_kind import READY_COLUMNS, Kind, within_factor
from plimsoll_operator.api.listeners import LISTENERS_RULES
from plimsoll_operator.api.logcluster import LogClusterSpec
from plimsoll_operator.api.token_issuers import TOKEN_ISSUERS_RULES

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
            "Each entry of users.shared names its resource, except for type Cluster.",
        ),
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
            "A LogCluster's name has at most 40 characters and no dots: it begins the names of its "
            "brokers, which are DNS labels.",
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
