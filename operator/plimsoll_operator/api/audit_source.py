"""The `source` of a Verification: existing topics, which it audits and does not write to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, Quantity, described

AuditCheck = Literal["ReplicasEqual", "Readable", "NoGap", "EpochsOrdered"]


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
