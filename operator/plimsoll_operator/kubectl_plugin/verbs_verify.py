"""`verify`: creates a Verification and follows it to its verdict."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from plimsoll_core.phrasing import ids_text
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import VERIFICATIONS
from plimsoll_operator.kubectl_plugin.continuous_view import continuous_parts
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import (
    Findings,
    Problem,
    ViewUnavailable,
    line,
    table,
    told,
    warned,
)
from plimsoll_operator.manifests.verification import run_name

OVER = ("Completed", "Failed")
REFUSED = ("VerificationDisabled", "ClusterNotFound", "Invalid", "UserNotFound")
NO_LISTENER = "ListenerMissing"
NO_TOPIC = "TopicNotFound"
CONTINUOUS_RATE = 100
"""Records per second of a continuous run, if the command states no rate."""
AMOUNTS = ("topics", "partitions", "replicas", "batches", "records", "markers", "bytes")
IN_OPTIONS = {
    "TopicNotEmpty": "To verify this topic anyway, repeat the command with --allow-existing.",
    NO_LISTENER: (
        "To let the Verification log in, repeat the command with --user and the name of a User of "
        "the LogCluster."
    ),
}
"""For some reasons of a refusal: a sentence that names the option of this command which does what
the refusal asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The records that a Verification writes. `per_second`: maximum rate in records per second;
    None: as fast as possible. `user`: the User to log in as; None: no login."""

    topic: str
    records: int
    per_second: int | None = None
    allow_existing: bool = False
    user: str | None = None
    window: str | None = None
    """The length of each window of a continuous run, which has no number of records. None for
    another run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditing:
    """The existing topics that a Verification audits. `pattern`: a regular expression for the whole
    name; `rate`: bytes per second, as a quantity; None: no limit. `user`: as of `Workload`."""

    pattern: str
    rate: str | None = None
    user: str | None = None


async def begin(session: PluginSession, work: Workload | Auditing) -> str:
    """Create the Verification and return its name. Raises `Problem` if the API server refuses it,
    or if the topic to write to neither exists nor is declared by an object."""
    if isinstance(work, Workload):
        await _refuse_unknown(session, work.topic)
    what = _writes(work) if isinstance(work, Workload) else _audits(work)
    spec: Object = {"clusterRef": {"name": session.cluster.metadata.name}, **what}
    if work.user is not None:
        spec["user"] = work.user
    return await _create(session, spec)


async def begin_again(session: PluginSession, earlier: str) -> str:
    """Create a Verification that judges the ledger which the Verification `earlier` kept, and
    return the new one's name. Raises `Problem` if `earlier` does not exist or keeps no evidence, or
    if the API server refuses the new one."""
    try:
        body = await session.kube.get(VERIFICATIONS, session.namespace, earlier)
    except ApiError as error:
        raise Problem(f"Cannot read Verification {earlier}: {told(error)}") from error
    spec: Object = body["spec"]
    if "evidence" not in spec:
        raise Problem(
            f"Verification {earlier} cannot be resumed, because it kept no evidence files (it has "
            "no spec.evidence). Run a new Verification."
        )
    run = spec["evidence"].get("resume") or run_name(earlier, body["metadata"]["uid"])
    return await _create(session, {**spec, "evidence": {**spec["evidence"], "resume": run}})


async def _create(session: PluginSession, spec: Object) -> str:
    at = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    kind = "audit" if "source" in spec else "verify"
    name = f"{kind}-{at}-{secrets.token_hex(2)}"  # unique even within one second
    body = {
        "apiVersion": API_VERSION,
        "kind": VERIFICATIONS.kind,
        "metadata": {"name": name, "namespace": session.namespace},
        "spec": spec,
    }
    try:
        await session.kube.create(VERIFICATIONS, body)
    except ApiError as error:
        raise Problem(f"Cannot create the Verification: {told(error)}") from error
    return name


def _writes(work: Workload) -> Object:
    produce: Object = {} if work.window is not None else {"records": work.records}
    if work.per_second is not None or work.window is not None:
        produce["recordsPerSecond"] = work.per_second or CONTINUOUS_RATE
    spec: Object = {"topic": work.topic, "produce": produce}
    if work.window is not None:
        spec |= {"mode": "Continuous", "window": work.window}
    return {**spec, "allowExisting": True} if work.allow_existing else spec


def _audits(work: Auditing) -> Object:
    source: Object = {"existingTopics": {"matchPattern": work.pattern}}
    if work.rate is not None:
        source["bytesPerSecond"] = work.rate
    return {"source": source}


async def _refuse_unknown(session: PluginSession, topic: str) -> None:
    try:
        await session.see(f"/topics/{quote(topic, safe='')}")
    except ViewUnavailable:
        return  # the Verification's status reports it
    except Problem as error:
        if not await _is_declared(session, topic):
            raise Problem(
                f"Cannot verify topic {topic}. {error} {_missing(session, topic)}"
            ) from error


async def _is_declared(session: PluginSession, topic: str) -> bool:
    """Return True if a Topic object declares the topic. The operator may then still create the
    topic."""
    bodies = await session.topic_objects()
    return topic in [one["spec"].get("topicName") or one["metadata"]["name"] for one in bodies]


async def _nobody_declares(session: PluginSession, topic: str) -> str:
    """Return "" if a Topic object declares the topic, which does not exist yet; otherwise a
    sentence that says that no object declares it."""
    return "" if await _is_declared(session, topic) else _missing(session, topic)


def _is_refused(reason: str, spec: Object) -> bool:
    """Return True if `reason`, why a Verification is not Ready, means that it can never start with
    this spec."""
    return reason in REFUSED or (reason == NO_LISTENER and "user" not in spec)


def _missing(session: PluginSession, topic: str) -> str:
    where = f"of LogCluster {session.cluster.metadata.name} in {session.namespace}"
    return f"No Topic object {where} declares topic {topic} either; apply one, or create the topic."


async def _delete(session: PluginSession, body: Object) -> str | None:
    """Delete the Verification `body`, which cannot start, so that later Verifications of its topic
    need not wait for it. Return a sentence about the result, a failure included. Return None, and
    delete nothing, if the object has changed since `body` was read: it may have started."""
    meta = body["metadata"]
    name, uid, version = meta["name"], meta["uid"], meta["resourceVersion"]
    try:
        with contextlib.suppress(NotFound):
            await session.kube.delete(
                VERIFICATIONS, session.namespace, name, uid=uid, version=version
            )
    except Conflict:
        return None
    except ApiError as error:
        return (
            f"Verification {name} could not be deleted, so it starts as soon as what it waits for "
            f"is there. To prevent that, run `kubectl delete verification {name} -n "
            f"{session.namespace}`: {told(error)}"
        )
    return f"Deleted Verification {name}, which had not started."


async def progress(session: PluginSession, name: str) -> Findings:
    """Show the phase and the counts of a Verification that this command made, and delete it if it
    can never start with its spec. A continuous run is followed to its first window. The exit code
    is 1 after a verdict other than Passed or if it cannot start, else 0. Raises `Problem` if the
    Verification cannot be read."""
    body = await _read(session, name)
    status = dict(body.get("status") or {})
    ready = _ready(status)
    waits, ended = ready.get("status") == "False", status.get("phase") in OVER
    missing = ""
    topic = body["spec"].get("topic")  # an audit names a pattern instead
    if waits and ready["reason"] == NO_TOPIC and topic is not None:
        missing = await _nobody_declares(session, topic)
    refused = bool(missing) or (waits and _is_refused(ready["reason"], body["spec"]))
    gone = await _delete(session, body) if refused and not ended else None
    over = ended or gone is not None
    found = _shown(body, [one for one in (missing, gone) if one], over=over)
    if over or not (status.get("continuous") or {}).get("recent"):
        return found
    where = f"{name} -n {session.namespace}"
    goes_on = (
        f"The Verification continues. `kubectl plimsoll verify --show {where} --watch` shows its "
        f"windows, `kubectl delete verification {where}` ends it."
    )
    return replace(found, parts=[*found.parts, line(goes_on)], over=True)


async def show(session: PluginSession, name: str) -> Findings:
    """Show the phase, the counts and the windows of any Verification, and change nothing. The exit
    code is 1 after a verdict other than Passed, else 0. Raises `Problem` if the Verification cannot
    be read."""
    body = await _read(session, name)
    return _shown(body, [], over=(body.get("status") or {}).get("phase") in OVER)


async def _read(session: PluginSession, name: str) -> Object:
    try:
        return await session.kube.get(VERIFICATIONS, session.namespace, name)
    except ApiError as error:
        raise Problem(f"Cannot read Verification {name}: {told(error)}") from error


def _shown(body: Object, said: Sequence[str], *, over: bool) -> Findings:
    """Return what there is to show of a Verification. `said`: sentences about what this command
    did; `over`: True if it has ended."""
    name, status = body["metadata"]["name"], dict(body.get("status") or {})
    phase, verdict = status.get("phase") or "Pending", status.get("verdict") or ""
    ready = _ready(status)
    waits = ready.get("status") == "False"
    passed = verdict == "Passed"
    head = f"Verification {name}: {phase}{f', {verdict}' if verdict else ''}"
    if until := (status.get("continuous") or {}).get("acknowledged"):
        head += f" (earlier violations are acknowledged until {until})"
    parts: list[Any] = [line(head, bad=over and not passed)]
    if ready and (over or waits):
        parts.append(line(f"{ready['reason']}: {ready['message']}"))
        option = IN_OPTIONS.get(ready["reason"]) if over else None
        parts += [line(one) for one in (option, *said) if one]
    if not over and (so_far := _so_far(body["spec"], status.get("counts") or {}, phase)):
        parts.append(line(so_far))
    parts += continuous_parts(status)
    parts += _audit_parts(status)
    if (counts := status.get("counts")) and "source" not in body["spec"]:
        titles = ["acked", "read", "lost", "duplicated", "outOfOrder", "gaps"]
        titles += ["rewritten"] if counts.get("rewritten") else []
        cells = [warned(counts.get(title, 0), title in titles[2:] and counts.get(title))
                 for title in titles]  # fmt: skip
        parts.append(table(["out of order" if t == "outOfOrder" else t for t in titles], [cells]))
    if evidence := status.get("evidence"):
        parts.append(line(f"The report is in ConfigMap {evidence['reportConfigMap']}."))
        if place := evidence.get("place"):
            missing = f" ({evidence['missing']})" if evidence.get("missing") else ""
            parts.append(line(f"The evidence of the run is kept: {place}{missing}."))
    data = {"name": name, "status": status}
    judged = over or bool(verdict)  # a continuous run has a verdict while it goes on
    return Findings(data=data, parts=parts, over=over, code=0 if passed or not judged else 1)


def _ready(status: Object) -> Object:
    return next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})


def _so_far(spec: Object, counts: Object, phase: str) -> str:
    """Return, as a sentence, how far a run or an audit is; "" if there is nothing to tell."""
    read = counts.get("read", 0)
    if "source" in spec:
        return f"The Verification has read {read:,} records so far." if read else ""
    if phase == "Verifying":
        return f"{read:,} of {counts.get('acked', 0):,} acknowledged records were read back."
    total = (spec.get("produce") or {}).get("records")
    if phase != "Producing" or not total:
        return ""
    sent = counts.get("sent", 0)
    return f"The Verification has sent {sent:,} of {total:,} records ({100 * sent // total} %)."


def _audit_parts(status: Object) -> list[Any]:
    """Return the amounts that an audit has read, and the places of the faults that any Verification
    found."""
    parts: list[Any] = []
    if audited := status.get("audited"):
        shown = [one for one in AMOUNTS if one != "markers" or audited.get(one)]
        parts.append(table(shown, [[str(audited.get(one, 0)) for one in shown]]))
    examples = (status.get("evidence") or {}).get("examples") or ()
    if examples:
        titles = ("topic", "partition", "offsets", "brokers", "valid on", "finding")
        parts.append(table(titles, [_example_cells(one) for one in examples]))
    return parts


def _example_cells(one: Object) -> list[str]:
    first, last = one.get("offset", 0), one.get("lastOffset")
    offsets = str(first) if last in (None, first) else f"{first} to {last}"
    stated = one.get("brokers")
    brokers = ids_text(stated) if stated else ""
    valid = ids_text(one["validBrokers"]) if one.get("validBrokers") else ""
    finding = ": ".join(part for part in (one.get("kind"), one.get("detail")) if part)
    return [one.get("topic", ""), str(one.get("partition", 0)), offsets, brokers, valid, finding]
