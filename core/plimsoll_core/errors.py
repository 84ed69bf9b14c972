"""Kafka's error codes, and the reasons of refusals. A reason has a name and a code.

The name becomes the reason of a condition and of an Event, the code goes over the wire, and tests
assert on it. docs/protocol.md, "Controller transitions", lists the codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum


class Code(IntEnum):
    """The Kafka error codes that a Plimsoll process sends or handles."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120


class Reason(Enum):
    """The reasons for which the controller or the operator refuses a request. The value is Kafka's
    error code with the name, which makes it unique."""

    UnknownTopicOrPartition = (Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown-topic-or-partition")
    NotController = (Code.NOT_CONTROLLER, "not-controller")
    InvalidRequest = (Code.INVALID_REQUEST, "invalid-request")
    UnknownTopicId = (Code.UNKNOWN_TOPIC_ID, "unknown-topic-id")
    FencedLeaderEpoch = (Code.FENCED_LEADER_EPOCH, "fenced-leader-epoch")
    StaleBrokerEpoch = (Code.STALE_BROKER_EPOCH, "stale-broker-epoch")
    StaleControllerEpoch = (Code.STALE_CONTROLLER_EPOCH, "stale-controller-epoch")
    InvalidUpdateVersion = (Code.INVALID_UPDATE_VERSION, "invalid-update-version")
    InconsistentClusterId = (Code.INCONSISTENT_CLUSTER_ID, "inconsistent-cluster-id")
    IneligibleReplica = (Code.INELIGIBLE_REPLICA, "ineligible-replica")
    NewLeaderElected = (Code.NEW_LEADER_ELECTED, "new-leader-elected")
    InvalidRegistration = (Code.INVALID_REGISTRATION, "invalid-registration")
    DuplicateBrokerRegistration = (
        Code.DUPLICATE_BROKER_REGISTRATION,
        "duplicate-broker-registration",
    )
    BrokerIdNotRegistered = (Code.BROKER_ID_NOT_REGISTERED, "broker-id-not-registered")
    VolumeNotEmptied = (Code.INVALID_REGISTRATION, "volume-replaced-needs-consent")
    MetadataRegressed = (Code.NOT_CONTROLLER, "metadata-regressed")
    MetadataDismissed = (Code.INVALID_REGISTRATION, "metadata-dismissed")
    MetadataTooNew = (Code.UNSUPPORTED_VERSION, "metadata-too-new")
    MetadataTooOld = (Code.UNSUPPORTED_VERSION, "metadata-too-old")
    InsideNotReady = (Code.INVALID_REQUEST, "inside-not-ready")
    InvalidTopicName = (Code.INVALID_TOPIC_EXCEPTION, "invalid-topic-name")
    TopicAlreadyExists = (Code.TOPIC_ALREADY_EXISTS, "topic-already-exists")
    InvalidPartitions = (Code.INVALID_PARTITIONS, "invalid-partitions")
    InvalidReplicationFactor = (Code.INVALID_REPLICATION_FACTOR, "invalid-replication-factor")
    InvalidReplicaAssignment = (Code.INVALID_REPLICA_ASSIGNMENT, "invalid-replica-assignment")
    InvalidConfig = (Code.INVALID_CONFIG, "invalid-config")
    PolicyViolation = (Code.POLICY_VIOLATION, "policy-violation")
    ReassignmentInProgress = (Code.REASSIGNMENT_IN_PROGRESS, "reassignment-in-progress")
    BrokerRestarts = (Code.REASSIGNMENT_IN_PROGRESS, "broker-restarts")
    NoReassignmentInProgress = (Code.NO_REASSIGNMENT_IN_PROGRESS, "no-reassignment-in-progress")
    TopicDeletionDisabled = (Code.TOPIC_DELETION_DISABLED, "topic-deletion-disabled")
    PreferredLeaderNotAvailable = (
        Code.PREFERRED_LEADER_NOT_AVAILABLE,
        "preferred-leader-not-available",
    )
    EligibleLeadersNotAvailable = (
        Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "eligible-leaders-not-available",
    )
    ElectionNotNeeded = (Code.ELECTION_NOT_NEEDED, "election-not-needed")
    TopicAuthorizationFailed = (Code.TOPIC_AUTHORIZATION_FAILED, "topic-authorization-failed")
    GroupAuthorizationFailed = (Code.GROUP_AUTHORIZATION_FAILED, "group-authorization-failed")
    ClusterAuthorizationFailed = (Code.CLUSTER_AUTHORIZATION_FAILED, "cluster-authorization-failed")
    SecurityDisabled = (Code.SECURITY_DISABLED, "security-disabled")
    UnknownCredential = (Code.RESOURCE_NOT_FOUND, "unknown-credential")
    DuplicateCredential = (Code.DUPLICATE_RESOURCE, "duplicate-credential")
    UnacceptableCredential = (Code.UNACCEPTABLE_CREDENTIAL, "unacceptable-credential")
    TooManyWaiting = (Code.THROTTLING_QUOTA_EXCEEDED, "too-many-waiting")
    # Refusals that only a resource's status shows; clients that meet them get INVALID_REQUEST.
    ClusterNotFound = (Code.INVALID_REQUEST, "cluster-not-found")
    NotAllowed = (Code.INVALID_REQUEST, "namespace-not-allowed")
    UserNameTaken = (Code.INVALID_REQUEST, "user-name-taken")
    TopicNameTaken = (Code.TOPIC_ALREADY_EXISTS, "topic-name-taken")
    DiskFull = (Code.INVALID_REPLICA_ASSIGNMENT, "disk-full")
    ReplicaCapacity = (Code.INVALID_REPLICA_ASSIGNMENT, "replica-capacity")
    TrafficCapacity = (Code.INVALID_REPLICA_ASSIGNMENT, "traffic-capacity")
    NotEnoughBrokers = (Code.INVALID_REPLICATION_FACTOR, "not-enough-brokers")
    PlacementInvalid = (Code.INVALID_REPLICA_ASSIGNMENT, "placement-invalid")
    MassDeletion = (Code.INVALID_REQUEST, "mass-deletion")
    PlanOutdated = (Code.INVALID_REQUEST, "plan-outdated")
    RecordTooLarge = (Code.INVALID_REQUEST, "record-too-large")
    BrokerHoldsReplicas = (Code.INVALID_REQUEST, "broker-holds-replicas")
    BrokerLives = (Code.INVALID_REQUEST, "broker-lives")
    BrokerLeaving = (Code.INVALID_REPLICA_ASSIGNMENT, "broker-leaving")
    ExplicitPlacement = (Code.INVALID_REQUEST, "explicit-placement")
    VolumeInUse = (Code.INVALID_REQUEST, "volume-in-use")
    ClusterPaused = (Code.POLICY_VIOLATION, "cluster-paused")
    ClusterHibernates = (Code.POLICY_VIOLATION, "cluster-hibernates")
    OutsideMaintenanceWindow = (Code.POLICY_VIOLATION, "outside-maintenance-window")
    LeaderNotEligible = (Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "named-leader-not-eligible")

    @property
    def code(self) -> int:
        """Return Kafka's error code."""
        return int(self.value[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused request: the reason, and a sentence that says what to do about it."""

    reason: Reason
    message: str

    def renamed(self, was: Reason, becomes: Reason) -> Refusal:
        """Return the refusal with reason `becomes` in place of `was`; the same refusal if it has
        another reason."""
        return replace(self, reason=becomes) if self.reason is was else self
