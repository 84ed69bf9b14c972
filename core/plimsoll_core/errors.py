"""Why something was refused: one name, one sentence, one Kafka error code.

The name becomes a condition's reason and an Event's reason, the code goes over the wire, and tests
assert on it.  `protocol.md`, "Controller transitions", gives the codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Reason(Enum):
    """A refusal's name (value: Kafka's error code, made unique by the name)."""

    UnknownTopicOrPartition = (3, "unknown-topic-or-partition")
    NotController = (41, "not-controller")
    InvalidRequest = (42, "invalid-request")
    UnknownTopicId = (100, "unknown-topic-id")
    FencedLeaderEpoch = (74, "fenced-leader-epoch")
    StaleBrokerEpoch = (77, "stale-broker-epoch")
    InvalidUpdateVersion = (95, "invalid-update-version")
    InconsistentClusterId = (104, "inconsistent-cluster-id")
    IneligibleReplica = (107, "ineligible-replica")
    NewLeaderElected = (108, "new-leader-elected")
    InvalidRegistration = (119, "invalid-registration")
    DuplicateBrokerRegistration = (101, "duplicate-broker-registration")
    BrokerIdNotRegistered = (102, "broker-id-not-registered")
    VolumeNotEmptied = (119, "volume-replaced-needs-consent")
    MetadataRegressed = (41, "metadata-regressed")
    MetadataTooNew = (35, "metadata-too-new")
    MetadataTooOld = (35, "metadata-too-old")
    InvalidTopicName = (17, "invalid-topic-name")
    TopicAlreadyExists = (36, "topic-already-exists")
    InvalidPartitions = (37, "invalid-partitions")
    InvalidReplicationFactor = (38, "invalid-replication-factor")
    InvalidReplicaAssignment = (39, "invalid-replica-assignment")
    InvalidConfig = (40, "invalid-config")
    PolicyViolation = (44, "policy-violation")
    ReassignmentInProgress = (60, "reassignment-in-progress")
    BrokerRestarts = (60, "broker-restarts")
    NoReassignmentInProgress = (85, "no-reassignment-in-progress")
    TopicDeletionDisabled = (73, "topic-deletion-disabled")
    PreferredLeaderNotAvailable = (80, "preferred-leader-not-available")
    EligibleLeadersNotAvailable = (83, "eligible-leaders-not-available")
    ElectionNotNeeded = (84, "election-not-needed")
    TooManyWaiting = (89, "too-many-waiting")
    # Refusals that only a resource's status shows; clients that meet them get INVALID_REQUEST.
    ClusterNotFound = (42, "cluster-not-found")
    NotAllowed = (42, "namespace-not-allowed")
    TopicNameTaken = (36, "topic-name-taken")
    NotEnoughBrokers = (38, "not-enough-brokers")
    PlacementInvalid = (39, "placement-invalid")
    MassDeletion = (42, "mass-deletion")
    PlanOutdated = (42, "plan-outdated")
    RecordTooLarge = (42, "record-too-large")
    BrokerHoldsReplicas = (42, "broker-holds-replicas")
    BrokerLives = (42, "broker-lives")
    BrokerLeaving = (39, "broker-leaving")
    ExplicitPlacement = (42, "explicit-placement")
    VolumeInUse = (42, "volume-in-use")
    LeaderNotEligible = (83, "named-leader-not-eligible")

    @property
    def code(self) -> int:
        """Kafka's error code."""
        return self.value[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A 'no' with its reason and a sentence that says what to do about it."""

    reason: Reason
    message: str

    def renamed(self, was: Reason, becomes: Reason) -> Refusal:
        """The same sentence under the name that the asker knows."""
        return replace(self, reason=becomes) if self.reason is was else self
