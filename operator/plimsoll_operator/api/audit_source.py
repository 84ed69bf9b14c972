"""The `source` of a Verification: existing topics, which it audits and does not write to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName, Quantity, described

AuditCheck = Literal["ReplicasEqual", "Readable", "NoGap", "EpochsOrdered", "MirrorEqual"]


class ExistingTopics(Api, frozen=True, kw_only=True):
    """The topics to audit."""

    match_pattern: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_000,
            description="Regular expression (RE2) for the whole name; internal topics never match.",
        ),
    ]


class MirrorOf(Api, frozen=True, kw_only=True):
    """Another cluster that speaks Kafka's protocol. Each audited topic is compared, record by
    record, with its source there (check MirrorEqual). Offsets may differ."""

    bootstrap: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_000,
            pattern=r"^[^\s,/]+:[0-9]+(,[^\s,/]+:[0-9]+)*$",
            description="Its brokers' addresses, HOST:PORT, comma-separated.",
        ),
    ]
    secret: Annotated[
        ObjectName | None,
        described(
            "A Secret such as a User's, with librdkafka.conf and if needed ca.crt; its "
            "bootstrap.servers must name the brokers. Only these keys are mounted. Unset: no login."
        ),
    ] = None
    prefix: Annotated[
        Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9._-]*$")] | None,
        described("Stands before the source's name in the topic's, such as `primary.`."),
    ] = None


class AuditSource(Api, frozen=True, kw_only=True):
    """Audits existing topics and writes nothing; takes the place of topic and produce."""

    existing_topics: ExistingTopics
    reads: Annotated[
        Literal["Disk", "Memory"] | None,
        described(
            "Disk (default): the files of every replica. Memory: what consumers get from "
            "the leaders."
        ),
    ] = None
    bytes_per_second: Annotated[
        Quantity | None,
        described("Limit on reads, of all brokers together, such as 50Mi. Unset: none."),
    ] = None
    mirror_of: MirrorOf | None = None
