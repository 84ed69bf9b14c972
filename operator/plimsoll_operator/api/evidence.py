"""`spec.evidence` of a Verification: where its ledger, results and Spark's event log are kept."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName, described

_HOST = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
RunName = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[a-z0-9]([-a-z0-9.]*)$")]


class S3(Api, frozen=True, kw_only=True):
    """A bucket of an S3 server."""

    bucket: Annotated[str, Meta(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    prefix: Annotated[
        Annotated[str, Meta(max_length=256, pattern=r"^[A-Za-z0-9._/-]*$")] | None,
        described("Directory in the bucket; each run and each backup has one of its own in it."),
    ] = None
    endpoint: Annotated[
        Annotated[str, Meta(max_length=253, pattern=rf"^https?://{_HOST}(:{_PORT})?$")] | None,
        described("URL of the server, without a path; unset: Amazon's."),
    ] = None
    region: Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9-]*$")] | None = None
    secret: Annotated[
        ObjectName,
        described(
            "The Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and if needed "
            "AWS_SESSION_TOKEN and ca.crt (the server's authorities). Only these are used."
        ),
    ]


class EvidenceStore(Api, frozen=True, kw_only=True):
    """Where the ledger, the results and Spark's event log are kept; exactly one place."""

    persistent_volume_claim: Annotated[
        ObjectName | None, described("An existing claim, mounted in the driver's pod.")
    ] = None
    s3: S3 | None = None
    keep: Annotated[
        Literal["Always", "OnViolation", "Never"] | None,
        described(
            "OnViolation (default): deleted after Passed. Never: deleted after every verdict; it "
            "only lets a driver that dies have a successor."
        ),
    ] = None
    resume: Annotated[
        RunName | None,
        described(
            "The name of an earlier run (status.evidence.run), which is judged by the ledger that "
            "it left; nothing is written."
        ),
    ] = None
