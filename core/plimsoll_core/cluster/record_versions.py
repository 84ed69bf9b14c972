"""The metadata version that introduced each kind of record and each field, for writers and readers.

A cluster's metadata version is part of its image, 1 until a record states another one.  It says
what the log may hold: a controller writes no kind and no field that is newer, so that a reader
that understands the version can read every record.  `image.append` asks `newer_than` for whatever
is about to be written.  Every reader of the log, a snapshot or the metadata stream calls
`read_records`, which refuses records of a newer release and drops nothing: an operator that meets
`MetadataTooNew` does not lead, and a broker applies nothing more.

A new kind, field or value of an enumeration gets a row here, and the decision that produces it asks
`image.metadata_version` first.  Nothing here decides when a version is finalised
(`brokers.metadata_finalization`).  Source: KIP-584, KIP-778 (metadata.version);
docs/design/004-metadata-version.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from plimsoll_core.cluster import model as m
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.listeners import Advertised, Listener
from plimsoll_core.quotas import state as quotas
from plimsoll_core.release import RELEASE
from plimsoll_core.security import acl, client_certificates, inside, scram, tokens
from plimsoll_core.security import state as security

OLDEST = 1
"""The oldest metadata version that this software runs a cluster at."""
NEWEST = 5
"""The newest metadata version that this software understands."""
UNDERSTOOD = (OLDEST, NEWEST)

OWNERS_SINCE = 4
"""The first metadata version in which a topic has an owner."""

TERMS_SINCE = 5
"""The first metadata version in which controller terms have ids."""

RESTORES_SINCE = 5
"""The first metadata version in which the log tells of its restore."""

LOAD_SINCE = 5
"""The first metadata version in which a Rebalance may have the mode Load."""

SKIPS_SINCE = 5
"""The first metadata version in which a change of partitions may skip epochs."""

HIBERNATION_SINCE = 5
"""The first metadata version in which a cluster can hibernate."""

POOLS_SINCE = 5
"""The first metadata version of a cluster with pools. No record holds them: an older operator would
ignore the pools of the spec, and drain their brokers. From this version on it does not lead."""

PUSHES_SINCE = 5
"""The first metadata version in which followers take what their leaders push. No record holds it: a
leader of an older release would not push anyway."""

RELEASES = {1: "0.1", 2: "0.2", 3: "0.2", 4: "0.2", 5: "0.3"}
"""The release that introduced each metadata version. A published release understands the newest of
the versions that it introduced."""

Row = dict[int, str]
"""The names of a struct's fields, separated by blanks, by the metadata version that introduced
them. The struct itself is as old as its oldest field."""

TABLE: dict[type[msgspec.Struct], Row] = {
    r.ControllerChanged: {1: "cause controller_epoch identity", TERMS_SINCE: "term_id restored"},
    r.ClusterDeclared: {1: "cause cluster_id name"},
    r.MetadataVersionFinalized: {2: "cause metadata_version"},
    r.MembersChanged: {1: "cause broker_ids"},
    r.NewcomersSettled: {1: "cause broker_ids"},
    r.BrokersLeaving: {1: "cause broker_ids"},
    r.BrokerRegistered: {
        1: "cause broker_id incarnation_id directory_ids endpoints rack pod_uid revision",
    },
    r.BrokerUpdated: {
        1: "cause broker_id broker_epoch directory_ids endpoints rack pod_uid revision",
    },
    r.BrokerFenced: {1: "cause broker_id broker_epoch"},
    r.BrokerUnfenced: {1: "cause broker_id broker_epoch"},
    r.BrokerShutdownStarted: {1: "cause broker_id broker_epoch"},
    r.BrokerUnregistered: {1: "cause broker_id broker_epoch"},
    r.VolumeReleased: {1: "cause broker_id pvc_uid"},
    r.VolumeForgotten: {1: "cause pvc_uid"},
    r.TopicCreated: {
        1: "cause topic_id name replication_factor min_isr configs strategy object deletion_policy",
        OWNERS_SINCE: "owner",
    },
    r.PartitionsCreated: {1: "cause topic_id first replicas isr"},
    r.PartitionsChanged: {
        1: "cause topic_id ranges leader_epoch_step leader isr elr last_known_elr replicas"
        " adding removing min_isr recovery",
        SKIPS_SINCE: "epochs_skipped",
    },
    r.TopicConfigured: {1: "cause topic_id configs min_isr replication_factor strategy"},
    r.TopicBound: {1: "cause topic_id object deletion_policy"},
    r.TopicOrphaned: {1: "cause topic_id pending"},
    r.TopicRemoved: {1: "cause topic_id now_ms"},
    r.ProducerIdsAllocated: {1: "cause broker_id next_producer_id"},
    r.ReassignmentNoted: {1: "cause reassignment"},
    r.ReassignmentForgotten: {1: "cause uid"},
    r.RebalanceNoted: {1: "cause rebalance"},
    r.RebalanceMovesAdded: {1: "cause uid moves"},
    r.RebalanceAdvanced: {1: "cause uid begun moved dropped"},
    r.RebalanceForgotten: {1: "cause uid"},
    r.MovementLimited: {1: "cause bytes_per_second"},
    r.AuthorizationConfigured: {3: "cause authorization"},
    r.ScramCredentialSet: {3: "cause credential"},
    r.ScramCredentialRemoved: {3: "cause user mechanism"},
    r.AclsAdded: {3: "cause acls owner"},
    r.AclsRemoved: {3: "cause acls owner"},
    r.UserDeclared: {3: "cause user"},
    r.UserRemoved: {3: "cause user_name now_ms"},
    r.TokenIssuersConfigured: {3: "cause issuers"},
    r.ClientAuthoritiesConfigured: {3: "cause authorities"},
    r.UserCertificatesSet: {3: "cause row"},
    r.UserCertificatesRemoved: {3: "cause user"},
    r.QuotasSet: {3: "cause row"},
    r.QuotasRemoved: {3: "cause entity"},
    r.ListenersConfigured: {3: "cause listeners"},
    r.InsideModeSet: {3: "cause mode"},
    r.CertificatesAllowed: {3: "cause broker_id sha256"},
    r.RestartGranted: {1: "cause broker_id broker_epoch pod_uid revision"},
    r.RestartEnded: {1: "cause broker_id proven"},
    r.HibernationSet: {HIBERNATION_SINCE: "cause hibernated"},
    r.SnapshotTaken: {1: "cause end_offset name"},
    # Parts of records and of a snapshot's rows.
    m.Endpoint: {1: "name host port"},
    acl.Acl: {3: "resource name pattern principal host operation permission"},
    scram.PreviousKeys: {3: "stored_key server_key until_ms"},
    scram.ScramCredential: {
        3: "user mechanism salt iterations stored_key server_key owner previous",
    },
    security.Authorization: {3: "mode super_users allow_everyone_if_no_acl disguise"},
    security.UserObject: {3: "namespace name uid"},
    security.DeclaredUser: {3: "object user_name disabled gone_since_ms"},
    security.UserRemoval: {3: "namespace at_ms"},
    tokens.TokenKey: {3: "key_id algorithm public_key"},
    tokens.TokenIssuer: {
        3: "name login issuer audiences user_claim user_prefix keys",
    },
    client_certificates.ClientAuthority: {3: "name certificates source"},
    client_certificates.UserCertificate: {3: "sha256 not_after_ms"},
    client_certificates.UserCertificates: {3: "user owner certificates"},
    quotas.QuotaEntity: {3: "user client_id ip"},
    quotas.QuotaValues: {
        3: "producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate"
        " connection_creation_rate",
    },
    quotas.QuotaRow: {3: "entity values owner"},
    Listener: {
        3: "name port tls_version_min authentication connections_max connections_max_reauth_ms"
        " advertised bootstrap_servers",
    },
    Advertised: {3: "broker_id host port"},
    inside.BrokerCertificates: {3: "broker_id sha256"},
    inside.Inside: {3: "mode certificates"},
    m.TopicObject: {1: "namespace name uid"},
    m.PendingDeletion: {1: "since_ms until_ms"},
    m.ReassignmentObject: {1: "namespace name uid"},
    m.MovedPartitions: {1: "topic_id ranges"},
    m.Reassignment: {
        1: "object phase partitions total rolled_back bytes_per_second paused reason message"
        " started_ms ended_ms",
    },
    m.RebalanceObject: {1: "namespace name uid"},
    m.RebalanceMove: {1: "number topic_id index before after size wave"},
    m.Rebalance: {
        1: "object mode brokers phase plan_hash total replicas waves moved replicas_moved"
        " dropped lowest_isr_margin bytes_per_second paused reason message started_ms ended_ms",
    },
    m.Broker: {
        1: "id broker_epoch incarnation_id directory_ids endpoints rack pod_uid fenced"
        " shutting_down revision",
    },
    m.Topic: {
        1: "id name partitions replication_factor min_isr configs strategy object"
        " detached_from deletion_policy pending_deletion",
        2: "compacted",
        OWNERS_SINCE: "owner",
    },
    m.Partition: {
        1: "topic_id index replicas adding removing isr elr last_known_elr leader leader_epoch"
        " partition_epoch min_isr recovery",
    },
    m.Grant: {1: "broker_id broker_epoch pod_uid revision"},
    m.ControllerTerm: {TERMS_SINCE: "id first_offset"},
    m.DismissedCopy: {RESTORES_SINCE: "broker_id applied_offset nonce"},
    m.HistoryRestored: {
        RESTORES_SINCE: "at_ms end_offset digest from_brokers from_backup confirmed dismissed",
    },
}

VALUES: dict[type[msgspec.Struct], dict[str, dict[object, int]]] = {
    m.Rebalance: {"mode": {"Load": LOAD_SINCE}},
}
"""The values of enumerations that are newer than their fields, with their metadata versions."""


def introduced(kind: type[msgspec.Struct]) -> int:
    """Return the metadata version that introduced the record type `kind`."""
    return min(TABLE[kind])


def release_of(metadata_version: int) -> str:
    """Return the release that introduced a metadata version, or "#" and the number if it is
    unknown."""
    return RELEASES.get(metadata_version, f"#{metadata_version}")


def newest_of(release: str) -> int:
    """Return the newest metadata version that a release understands, 0 if it understands none."""
    known = (version for version, name in RELEASES.items() if numbers(name) <= numbers(release))
    return max(known, default=0)


def numbers(release: str) -> tuple[int, ...]:
    """Return the numbers in a release's name as a tuple, by which releases can be sorted by age."""
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the msgspec structs that a type annotation names, at any depth of its arguments."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from structs_in(part)


def parts_of(kind: type[msgspec.Struct]) -> dict[type[msgspec.Struct], None]:
    """Return the struct `kind` and all structs in its fields, recursively, as the keys of a
    dict."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            hints = get_type_hints(one)
            waiting += [part for name in hints for part in structs_in(hints[name])]
    return found


# The newest row that a kind of record can reach: below it nothing needs to be looked at.
_NEWEST_ROW = {
    kind: max(
        version
        for part in parts_of(kind)
        if part in TABLE
        for version in (
            *TABLE[part],
            *(v for f in VALUES.get(part, {}).values() for v in f.values()),
        )
    )
    for kind in r.Record.__args__
}


def newer_than(record: r.Record, metadata_version: int) -> str | None:
    """Return a sentence that names the first kind or field of the record that `metadata_version`
    does not know. Return None if the record may be written.

    A MetadataVersionFinalized record is checked against the version that it finalises.
    """
    if isinstance(record, r.MetadataVersionFinalized):
        metadata_version = record.metadata_version
    if _NEWEST_ROW[type(record)] <= metadata_version:
        return None
    if introduced(type(record)) > metadata_version:
        return (
            f"the record {type(record).__name__} belongs to metadata version "
            f"{introduced(type(record))}, but only version {metadata_version} is finalised"
        )
    return _newer_field(record, metadata_version)


def _newer_field(value: Any, metadata_version: int) -> str | None:
    if isinstance(value, tuple):
        return next((s for v in value if (s := _newer_field(v, metadata_version))), None)
    if not isinstance(value, msgspec.Struct):
        return None
    kind = type(value)
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    for version, names in TABLE[kind].items():
        for name in names.split():
            stated = getattr(value, name)
            if version > metadata_version and stated != defaults[name]:
                return (
                    f"the record field {kind.__name__}.{name} belongs to metadata version "
                    f"{version}, but only version {metadata_version} is finalised"
                )
            known = VALUES.get(kind, {}).get(name)
            since = version if known is None else known.get(stated, version)
            if since > metadata_version >= version:
                return (
                    f"the value {stated} of the record field {kind.__name__}.{name} belongs to "
                    f"metadata version {since}, but only version {metadata_version} is finalised"
                )
            if nested := _newer_field(stated, metadata_version):
                return nested
    return None


# --- readers -----------------------------------------------------------------------------------


class MetadataTooNew(Exception):
    """Raised for a record or a snapshot that a newer release wrote and this release does not
    understand. Its message is a sentence for the user."""


class _Typed(msgspec.Struct, frozen=True):
    type: str = ""


_records = msgspec.json.Decoder(tuple[r.Record, ...])


_types = msgspec.json.Decoder(list[_Typed])


_KNOWN = {kind.__name__ for kind in r.Record.__args__}


def read_records(data: bytes) -> tuple[r.Record, ...]:
    """Decode a batch's records from JSON. Raise MetadataTooNew for an unknown kind, field, value or
    metadata version; nothing is ever skipped."""
    try:
        found = _records.decode(data)
    except msgspec.DecodeError as error:
        raise MetadataTooNew(_why_not(data, error)) from error
    for record in found:
        if isinstance(record, r.MetadataVersionFinalized):
            check_known(record.metadata_version)
    return found


def check_known(metadata_version: int) -> None:
    """Raise MetadataTooNew if this software does not understand the metadata version."""
    if metadata_version > NEWEST:
        raise MetadataTooNew(
            f"the cluster's finalised metadata version is {release_of(metadata_version)}, but "
            f"this release ({RELEASE}) understands only {release_of(OLDEST)} to "
            f"{release_of(NEWEST)}; run a newer release"
        )


def _why_not(data: bytes, error: msgspec.DecodeError) -> str:
    try:
        unknown = sorted({item.type for item in _types.decode(data)} - _KNOWN)
    except msgspec.DecodeError:
        unknown = []
    if unknown:
        return f"the metadata has records that release {RELEASE} does not know: " + ", ".join(
            unknown
        )
    return f"the metadata has records that release {RELEASE} cannot read: {error}"
