"""Reconciles a Verification: starts its driver once the topic can be written, then shows the
driver's report.

The report ConfigMap is the only record of a run: it is deleted with the Verification, and a driver
that has reported anything is never started again. A Verification that shows its end is never read
again: later changes of its Job and report have no effect.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from plimsoll_core.addresses import split_address
from plimsoll_core.cluster.listener_peers import open_to_all
from plimsoll_core.cluster.topic_configs import compacts
from plimsoll_core.controller.moves.move_room import disk_rooms
from plimsoll_core.phrasing import first_few
from plimsoll_core.security.scram import SPEC_NAMES
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.user import User
from plimsoll_operator.api.verification import (
    ALL_CHECKS,
    Runner,
    Verification,
    VerificationStatus,
)
from plimsoll_operator.api.workload import profile_seconds
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    ROLES,
    SECRETS,
    VERIFICATIONS,
    Kind,
    kind_of,
)
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.manifests.executors import PODS_RULE, ExecutorSize, executor_size
from plimsoll_operator.manifests.listener_secrets import data_of
from plimsoll_operator.manifests.verification import (
    SparkDriver,
    children,
    role,
    run_name,
    timeout_seconds,
)
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.client_bootstrap import (
    Bootstrap,
    bootstrap_of,
    mechanisms_of,
)
from plimsoll_operator.reconcile.verification import drill
from plimsoll_operator.reconcile.verification.driver_death import cause, pods_of_job
from plimsoll_operator.reconcile.verification.driver_report import final, reported
from plimsoll_operator.reconcile.verification.evidence_place import (
    never_evidence,
    waits_for_evidence,
    waits_for_mirror,
)
from plimsoll_operator.reconcile.verification.expiry import expire
from plimsoll_operator.reconcile.verification.report_notes import ENDED, note
from plimsoll_operator.reconcile.verification.rolling_report import changed
from plimsoll_operator.reconcile.verification.volume_room import why_no_room
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.cluster_counts import have, partitions_of
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 2_000
LOOK_MS_MIN = 100
"""Shortest time in milliseconds until the next pass over a Verification while a drill has faults
left."""
ONCE_COMPACTED_MAX = 1_000
ACKNOWLEDGED = "acknowledged"
"""The key of the report's ConfigMap with the time up to which violations are acknowledged."""
COMPACTED = "compacted"
"""The key with `yes` if the run's topic is compacted, `before` if it was during the run."""
FORBIDDEN = 403
RPC_SECRET_BYTES = 32
CANNOT_GRANT = (
    "The operator may not give the driver pod of the Verification the right to create executor "
    "pods; install the chart with verification.executors=true, or set runner.executors to 0. The "
    "API server:"
)
FINAL = ("Completed", "Failed")
LOGIN_SUFFIX = "-kafka"
"""The login of User NAME is in Secret `NAME-kafka`. The policy of the chart about authors sees no
User, so it asks for the right to get the Secret of this name."""
LOGIN_FILES = {"java.properties", "librdkafka.conf"}


class _NameTaken(Exception):
    """Raised if an object that the driver needs exists and has another owner. Its text is a
    sentence."""


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    verification, target = term.objects.verifications.get(key), Target(VERIFICATIONS, *key)
    if verification is None or verification.metadata.deletion_timestamp:
        result.show_no_more(target)
        return
    if verification.cluster_key != term.key:
        return
    if _shows_its_end(term, key):
        await expire(term, result, verification)
        return
    user, bootstrap = _user(term, verification), Bootstrap()
    if user is not None:
        bootstrap = bootstrap_of(term, [SPEC_NAMES[one] for one in mechanisms_of(user)])
    driver = SparkDriver(
        kafka_port=_port(term, bootstrap),
        servers=",".join(bootstrap.servers),
        login=user.secret_name if user is not None else "",
        once_compacted=_once_compacted(term, verification),
        verification=verification,
        image=term.options.spark_image,
        image_pull_policy=term.options.image_pull_policy,
        image_pull_secrets=term.options.image_pull_secrets,
        set_user=term.options.set_user,
        api_server_ports=term.options.api_server_ports,
        output=term.options.driver_output,
        previous=_previous(term, verification),
        rpc_secret=os.urandom(RPC_SECRET_BYTES).hex(),
    )
    due_ms: int | None = None
    try:
        status = await _step(term, verification, driver)
        if verification.spec.drill is not None:
            report = await _find(term, CONFIG_MAPS, verification, driver.report)
            status, due_ms = await drill.follow(term, result, verification, report, status)
        await _note_acknowledged(term, verification, driver, status)
        await _note_compacted(term, verification, driver, status)
    except _NameTaken as why:
        status = _pending("NameTaken", str(why))
    except ApiError as error:
        raise Retry(str(error)) from error
    if status.phase in FINAL and not _ended(term, key):
        await _withdraw_pods(term, driver)
        _tell_verdict(term, result, verification, status)
    _tell_change(term, result, verification, status)
    result.show(target, verification.metadata.generation, status)
    if status.phase not in FINAL:
        wait_ms = LOOK_MS if due_ms is None else min(LOOK_MS, max(LOOK_MS_MIN, due_ms))
        result.add_later(Work(Task.VERIFICATION, key), wait_ms)


async def _note_acknowledged(
    term: Term, verification: Verification, driver: SparkDriver, status: VerificationStatus
) -> None:
    """Write into the report's ConfigMap, for the driver of a continuous run, until when violations
    are acknowledged. A failure is ignored: the next pass writes it again."""
    until = None if status.continuous is None else status.continuous.acknowledged
    if until is None or status.phase in FINAL:
        return
    with suppress(ApiError):
        report = await _find(term, CONFIG_MAPS, verification, driver.report)
        await note(term.kube, report, ACKNOWLEDGED, until)


async def _note_compacted(
    term: Term,
    verification: Verification,
    driver: SparkDriver,
    status: VerificationStatus,
) -> None:
    """Write into the report's ConfigMap, for a driver that may not read the topic's configuration,
    that the topic is compacted, or was during the run: what its cleaner removes is no loss. A
    failure is ignored: the next pass writes it again."""
    topic_id = term.image.topic_ids.get(verification.spec.topic or "")
    if topic_id is None or status.phase in FINAL:
        return
    topic = term.image.topics[topic_id]
    if not topic.compacted:
        return
    with suppress(ApiError):
        report = await _find(term, CONFIG_MAPS, verification, driver.report)
        if compacts(topic.configs):
            await note(term.kube, report, COMPACTED, "yes")
        elif report is not None and COMPACTED in (report.get("data") or {}):
            await note(term.kube, report, COMPACTED, "before")


async def _withdraw_pods(term: Term, driver: SparkDriver) -> None:
    """Remove the right to make pods from the Role of a driver that has ended; do nothing if the
    driver had no executors. Raise Retry if the API server fails."""
    if not driver.executors:
        return
    try:
        manifest = role(driver, runs=False)
        found = await _find(term, ROLES, driver.verification, _name(manifest))
        if found is not None:
            await term.kube.apply(ROLES, _for_version(manifest, found))
    except ApiError as error:
        raise Retry(str(error)) from error


def _once_compacted(term: Term, verification: Verification) -> tuple[str, ...]:
    """Return the topics that were compacted and are not any more, for an audit: their logs may have
    gaps."""
    if verification.spec.source is None:
        return ()
    topics = term.image.topics.values()
    found = sorted(one.name for one in topics if one.compacted and not compacts(one.configs))
    return tuple(found[:ONCE_COMPACTED_MAX])


def _user(term: Term, verification: Verification) -> User | None:
    """Return the User that the Verification's driver logs in as. Return None if the spec names
    none, or the LogCluster has no such User."""
    name = verification.spec.user
    found = None if name is None else term.objects.users.get((verification.key[0], name))
    return found if found is not None and found.cluster_key == term.key else None


def _previous(term: Term, verification: Verification) -> Manifest | None:
    """Return the newest row in the status of the schedule that made the Verification; None if no
    schedule made it, or none of its runs has ended."""
    schedule = verification.metadata.labels.get(labels.SCHEDULE)
    if schedule is None:
        return None
    shown = term.objects.verification_schedules.choices((verification.key[0], schedule))
    rows = shown.get("runs") or [None]
    return rows[0] if isinstance(rows[0], dict) else None


def _port(term: Term, bootstrap: Bootstrap) -> int:
    if bootstrap.servers:
        return split_address(bootstrap.servers[0])[1]
    listener = open_to_all(term.image.listeners)
    return (listener.port if listener is not None else 0) or labels.KAFKA_PORT


def _tell_verdict(
    term: Term, result: PassResult, verification: Verification, status: VerificationStatus
) -> None:
    verdict = status.verdict or "Inconclusive"
    why = next((c.message for c in status.conditions if c.type == "Ready"), "")
    name = verification.metadata.name
    told = Occurrence(
        key=f"verdict-{verification.metadata.uid}",
        reason=f"Verification{verdict}",
        message=f"Verification {name}: {verdict}. {why}".strip()[:LENGTH_MAX],
        warning=verdict != "Passed",
        about=about_seen(VERIFICATIONS.kind, verification.metadata),
    )
    result.tell(told)


def _tell_change(
    term: Term, result: PassResult, verification: Verification, status: VerificationStatus
) -> None:
    """Tell if the verdict of a continuous run that goes on is another than the shown one."""
    if status.phase != "Running":
        return
    before = term.shown.status_of(Target(VERIFICATIONS, *verification.key), VerificationStatus)
    seen = term.objects.verifications.verdict(verification.key)
    verdict = seen if before is None else before.verdict or ""
    told = changed(verification, status, verdict, before)
    if told is not None:
        result.tell(told)


async def _step(term: Term, verification: Verification, driver: SparkDriver) -> VerificationStatus:
    begun = await _of_the_driver(term, verification, driver)
    if begun is not None:
        return begun
    never = (
        cannot_end(driver)
        or cannot_tell(term, verification)
        or cannot_run(driver)
        or cannot_fit(term, verification)
        or never_evidence(verification)
        or drill.refusal(term, verification)
    )
    if never is not None:
        return never
    waits = _waits_for(term, verification, driver) or await _waits_for_login(term, driver)
    if waits is not None:
        return VerificationStatus(phase="Pending", verdict="", conditions=(waits,))
    if (no_place := await waits_for_evidence(term.kube, verification)) is not None:
        return no_place
    if (no_login := await waits_for_mirror(term.kube, verification)) is not None:
        return no_login
    for manifest in children(driver):
        try:
            await _make(term, driver, manifest)
        except Rejected as error:
            if error.status != FORBIDDEN or kind_of(manifest) is not ROLES or not driver.executors:
                raise
            return _pending("ExecutorsForbidden", f"{CANNOT_GRANT} {error.reply}")
    return _pending("DriverStarted", "The pod of the Verification's driver is starting.")


async def _make(term: Term, driver: SparkDriver, manifest: Manifest) -> None:
    """Create an object of the driver. If an earlier operator created it, apply it again to the
    version that was just read. Leave a Role as it is if it has lost the right to make pods: the run
    has ended then, and this operator did not see it.

    An object of another owner is never taken over: a user that may write Verifications need not
    have rights on Roles or ServiceAccounts. Raise `_NameTaken` then.
    """
    kind = kind_of(manifest)
    try:
        await term.kube.create(kind, manifest)
    except Conflict as error:
        found = await _find(term, kind, driver.verification, _name(manifest))
        if kind is JOBS or found is None:
            raise Retry(str(error)) from error
        if kind is SECRETS:
            return  # its content is random, and the first one counts
        if kind is ROLES and driver.executors and not _makes_pods(found):
            return
        await term.kube.apply(kind, _for_version(manifest, found))


def _for_version(manifest: Manifest, found: Object) -> Manifest:
    """Return the manifest for the version of the object that was found: another one, or none, makes
    its application a conflict."""
    version = found["metadata"]["resourceVersion"]
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}


def _makes_pods(found: Object) -> bool:
    """Return True if a Role of a driver lets it make pods."""
    return PODS_RULE["resources"] in [one.get("resources") for one in found.get("rules") or ()]


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name


async def _of_the_driver(
    term: Term, verification: Verification, driver: SparkDriver
) -> VerificationStatus | None:
    """Return the status that the driver's Job and report give, or None if no driver was started. A
    Job that ended without a verdict gives a failed status."""
    job = await _find(term, JOBS, verification, driver.job)
    report = await _find(term, CONFIG_MAPS, verification, driver.report)
    status = None if report is None else reported(report, driver)
    if status is not None and status.phase in FINAL:
        return status
    if job is None and status is not None:
        job = await _find(term, JOBS, verification, driver.job)  # it may just have been created
        if job is None:
            await note(term.kube, report, ENDED, "DriverFailed")
            return _ended_without_a_verdict(
                status,
                "The Verification has no verdict, because another client deleted its Job "
                f"{driver.job} before it finished. Create the Verification again.",
            )
    if job is not None and _is_over(job):
        pods = await pods_of_job(term.kube, verification.metadata.namespace, driver.job)
        reason, text = cause(pods, driver.where_it_says)
        if verification.spec.evidence is not None:
            run = run_name(driver.name, verification.metadata.uid)
            text = (
                f"{text.removesuffix('.')}. Its list of written records is kept; to judge "
                f"these records, create a Verification with evidence.resume: {run}"
            )
        await note(term.kube, report, ENDED, reason)
        return _ended_without_a_verdict(status, text, reason)
    if job is not None and status is None:
        return _pending("DriverStarted", "The pod of the Verification's driver is starting.")
    return status


def _waits_for(term: Term, verification: Verification, driver: SparkDriver) -> Condition | None:
    if term.options.no_driver:
        return _condition("VerificationDisabled", term.options.no_driver)
    if not driver.image and not (verification.spec.runner and verification.spec.runner.image):
        return _condition(
            "VerificationDisabled",
            "The Verification does not start, because the chart was installed without "
            "Verifications; install it with verification.enabled=true.",
        )
    if (why := _no_way_in(term, verification, driver)) is not None:
        return why
    name = verification.spec.topic
    if name is None:
        return None  # an audit reads what there is
    topic_id = term.image.topic_ids.get(name)
    if topic_id is None:
        text = (
            f"The Verification waits, because topic {name} does not exist yet; create it, or apply "
            "a Topic object."
        )
        return _condition("TopicNotFound", text)
    topic = term.image.topics[topic_id]
    if offline := [p for p in partitions_of(term.image, topic) if p.leader is None]:
        return _condition(
            "TopicNotServing",
            f"The Verification waits until each partition of topic {topic.name} has a leader; "
            f"{have(len(offline))} none ({first_few([str(p.index) for p in offline])}).",
        )
    if (earlier := _earlier(term, verification)) is not None:
        text = (
            f"This Verification waits until Verification {earlier} has finished, because that one "
            f"uses topic {topic.name} too, and two runs cannot tell their records apart."
        )
        return _condition("TopicBusy", text)
    return None


def _no_way_in(term: Term, verification: Verification, driver: SparkDriver) -> Condition | None:
    """Return the condition that says why the driver could not reach a broker, or None if it can."""
    if verification.spec.user is None:
        if open_to_all(term.image.listeners) is not None:
            return None
        text = (
            "The Verification cannot connect without a login, because the LogCluster has no "
            "listener without tls and authentication; set spec.user."
        )
        return _condition("ListenerMissing", text)
    if not driver.login:
        text = (
            f"The Verification waits, because its namespace has no User {verification.spec.user} "
            "of this LogCluster. It starts when you create that User."
        )
        return _condition("UserNotFound", text)
    asked = f"{verification.spec.user}{LOGIN_SUFFIX}"
    if driver.login != asked:
        text = (
            f"The Verification cannot use User {verification.spec.user}, because that User keeps "
            f"its login in Secret {driver.login} (spec.secretName), and a Verification may only "
            f"use a login in Secret {asked}. Set spec.user to a User without spec.secretName."
        )
        return _condition("UserNotReady", text)
    if not driver.servers:
        text = (
            "The Verification waits, because no open listener of the brokers accepts the "
            "password of the User in spec.user. Add a login by SCRAM or PLAIN to "
            "spec.listeners[].authentication of the LogCluster."
        )
        return _condition("ListenerMissing", text)
    return None


async def _waits_for_login(term: Term, driver: SparkDriver) -> Condition | None:
    """Return the condition that says that the login Secret is missing or incomplete, or None if it
    is complete. It stays incomplete if the User keeps its password in another Secret."""
    if not driver.login:
        return None
    namespace = driver.verification.key[0]
    try:
        secret = await term.kube.get(SECRETS, namespace, driver.login)
    except NotFound:
        secret = {}
    data = data_of(secret)
    # Written before a broker has opened the listener, and again once there are servers to name.
    if data.keys() >= LOGIN_FILES and data.get("bootstrap.servers"):
        return None
    text = (
        f"Secret {driver.login} of User {driver.verification.spec.user} contains no login "
        "yet; the Verification starts when it does."
    )
    return _condition("UserNotReady", text)


def _earlier(term: Term, verification: Verification) -> str | None:
    """Return the name of the oldest unfinished Verification of the same topic that was created
    before this one, or None."""
    mine = _age(verification)
    others = [
        other
        for other in term.objects.verifications
        if (other.cluster_key, other.spec.topic) == (term.key, verification.spec.topic)
        and other.metadata.deletion_timestamp is None
        and _age(other) < mine
        and not _ended(term, other.key)
    ]
    first = min(others, key=_age, default=None)
    return None if first is None else first.metadata.name


def _age(verification: Verification) -> tuple[str, str]:
    meta = verification.metadata
    return meta.creation_timestamp or "", meta.uid


def _ended(term: Term, key: Key) -> bool:
    """Return True if the Verification has ended, by the status of this term's last pass, else by
    the object's."""
    known = term.shown.status_of(Target(VERIFICATIONS, *key), VerificationStatus)
    return known.phase in FINAL if known is not None else _shows_its_end(term, key)


def _shows_its_end(term: Term, key: Key) -> bool:
    """Return True if the object's own conditions say that the Verification has ended. A condition
    older than the object does not count: statuses are written by name, so a late write may be about
    a deleted Verification of the same name."""
    found = term.objects.verifications.get(key)
    made = "" if found is None else found.metadata.creation_timestamp or ""
    return any(
        c.type in ("Complete", "Failed") and c.status == "True" and c.last_transition_time >= made
        for c in term.objects.verifications.conditions(key)
    )


def cannot_end(driver: SparkDriver) -> VerificationStatus | None:
    """Return a failed status if, at the rate that the spec states, the records cannot be written
    before the time for the checks begins; else None, also if the spec states no rate."""
    spec, produce = driver.verification.spec, driver.verification.spec.produce
    if produce is None or (spec.evidence is not None and spec.evidence.resume is not None):
        return None
    rate, load = produce.records_per_second, produce.load
    if rate is not None:
        needed_s, at = produce.total / rate, f"{rate} per second"
    elif load is not None:
        needed_s, at = profile_seconds(load), "the rates of produce.load"
    else:
        return None
    timeout_s = timeout_seconds(driver.verification)
    left_s = driver.deadline_seconds - min(timeout_s, driver.deadline_seconds / 2)
    if needed_s <= left_s:
        return None
    message = (
        f"{produce.total} records at {at} take {needed_s:.0f} s, but deadlineSeconds "
        f"({driver.deadline_seconds}) leaves {left_s:.0f} s for writing. No driver pod was "
        "started. Set fewer records, a higher rate or a longer deadline."
    )
    return VerificationStatus(
        phase="Failed",
        verdict="Inconclusive",
        conditions=final("Failed", "CannotEnd", message),
    )


def cannot_fit(term: Term, verification: Verification) -> VerificationStatus | None:
    """Return a failed status if the records do not fit on the brokers' volumes (`volume_room`),
    else None."""
    controller = term.controller
    disks = disk_rooms(term.image, controller.soft, controller.now_ms)
    why = why_no_room(verification.spec, term.image, disks)
    if why is None:
        return None
    return VerificationStatus(
        phase="Failed", verdict="Inconclusive", conditions=final("Failed", "CannotFit", why)
    )


def cannot_tell(term: Term, verification: Verification) -> VerificationStatus | None:
    """Return a failed status if the topic is compacted and the checks NoLoss or NoGap are asked
    for, else None: records that the cleaner removes would count as lost, and their offsets as
    gaps."""
    name, verify = verification.spec.topic, verification.spec.verify
    checks = ALL_CHECKS if verify is None or verify.checks is None else verify.checks
    asked = set(checks)
    topic_id = None if name is None else term.image.topic_ids.get(name)
    if topic_id is None or not compacts(term.image.topics[topic_id].configs):
        return None
    if not asked & {"NoLoss", "NoGap"}:
        return None
    message = (
        f"Topic {name} is compacted: it keeps only the last record of each key, so NoLoss and "
        "NoGap cannot be checked. No driver pod was started. Use a topic with cleanup.policy "
        "delete, or other checks."
    )
    return VerificationStatus(
        phase="Failed",
        verdict="Inconclusive",
        conditions=final("Failed", "TopicCompacted", message),
    )


def cannot_run(driver: SparkDriver) -> VerificationStatus | None:
    """Return a failed status if executors are requested that are too small for Spark, else None."""
    if not driver.executors:
        return None
    size = executor_size(driver.verification.spec.runner or Runner())
    if isinstance(size, ExecutorSize):
        return None
    return VerificationStatus(
        phase="Failed",
        verdict="Inconclusive",
        conditions=final(
            "Failed",
            "ExecutorsTooSmall",
            f"{size} The Verification has ended without a driver pod; create another one with "
            "larger executors.",
        ),
    )


def _condition(reason: str, message: str) -> Condition:
    return condition("Ready", False, reason, message)


def _pending(reason: str, message: str) -> VerificationStatus:
    return VerificationStatus(
        phase="Pending", verdict="", conditions=(_condition(reason, message),)
    )


def _is_over(job: Object) -> bool:
    """Return True if the Job has ended, successful or not. A driver with a verdict has reported
    that before its Job ended."""
    return any(
        c["type"] in ("Complete", "Failed") and c["status"] == "True"
        for c in (job.get("status") or {}).get("conditions") or ()
    )


def _ended_without_a_verdict(
    known: VerificationStatus | None, why: str, reason: str = "DriverFailed"
) -> VerificationStatus:
    """Return the failed status of a run that ended for the reason `why`. `known` is the driver's
    last report, of which the counts are kept; None if there is none."""
    return msgspec.structs.replace(
        known or VerificationStatus(),
        phase="Failed",
        verdict="Inconclusive",
        conditions=final("Failed", reason, why),
    )


async def _find(term: Term, kind: Kind, verification: Verification, name: str) -> Object | None:
    """Return an object of the driver, or None if it does not exist. Raise Retry while one of a
    deleted Verification of the same name exists, `_NameTaken` if it has another owner."""
    try:
        found = await term.kube.get(kind, verification.metadata.namespace, name)
    except NotFound:
        return None
    owners = found["metadata"].get("ownerReferences") or ()
    going = found["metadata"].get("deletionTimestamp")
    if not going and verification.metadata.uid in [one.get("uid") for one in owners]:
        return found
    namesake = (VERIFICATIONS.kind, verification.metadata.name)
    if going or namesake in [(one.get("kind"), one.get("name")) for one in owners]:
        text = (
            f"the operator waits until Kubernetes has deleted {kind.kind} {name} of a deleted "
            "Verification of the same name; nothing needs to be done unless that lasts for "
            "minutes: then look at its finalizers"
        )
        raise Retry(text, after_ms=LOOK_MS)
    raise _NameTaken(
        f"{kind.kind} {name} exists and does not belong to this Verification, so no driver pod is "
        "started. Delete it, or create a Verification with another name."
    )
