"""`python -m plimsoll_spark.verification --config FILE`: writes to a topic, and verifies its log.

Run by the operator's Job, or by hand. If the evidence of the run exists, its driver has died: the
run is judged by the ledger that it left, and nothing is written. Exit code 0 for any verdict
reached (read it in `verdict.json`), 1 for a run that failed, 2 for a refused request, 3 for a run
that failed and that the next driver judges, 4 for a driver that ends since a later one works on its
run.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from plimsoll_spark import cgroup
from plimsoll_spark import settings as requested
from plimsoll_spark.attempts import Superseded
from plimsoll_spark.audit import Audit
from plimsoll_spark.audit_settings import is_audit, load_audit
from plimsoll_spark.continuous import KEPT_IN_BUCKET, ContinuousRun
from plimsoll_spark.continuous_drive import NumbersUsed
from plimsoll_spark.evidence import Evidence, bucket_of
from plimsoll_spark.failures import failure_of
from plimsoll_spark.publish import publisher_for
from plimsoll_spark.run import Run
from plimsoll_spark.supervisor import SUPERSEDED, keep_running
from plimsoll_spark.values import Outcome

VERDICT_REACHED, REFUSED, RESUMABLE = 0, 2, 3

log = logging.getLogger("plimsoll_spark")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verification that the arguments name. Return the exit code: 0 if it reached a
    verdict, 2 if it was refused, 3 if the next driver is to judge it, 4 if a later driver works on
    it. Raises the error of a run that failed, which makes the exit code 1."""
    parser = argparse.ArgumentParser(prog="plimsoll_spark.verification")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--login", type=Path, metavar="DIR", help="where the Secret of a User is mounted"
    )
    parser.add_argument(
        "--evidence", type=Path, metavar="DIR", help="where the volume for evidence is mounted"
    )
    parser.add_argument(
        "--bucket-login",
        type=Path,
        metavar="DIR",
        help="where the Secret with the credentials of evidence.s3 is mounted",
    )
    parser.add_argument(
        "--mirror-login",
        type=Path,
        metavar="DIR",
        help="where the Secret for the cluster of source.mirrorOf is mounted",
    )
    parser.add_argument(
        "--resume", metavar="RUN", help="judge this run by the ledger that it left; write nothing"
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="the directory in which a continuous run goes on"
    )
    options = parser.parse_args(arguments)
    os.umask(0o077)  # evidence and temporary files are for this user only
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells each call from the JVM
    try:
        start = _requested(options)
        if start is None:
            return _supervised(options, list(sys.argv[1:] if arguments is None else arguments))
    except requested.Refusal as refusal:
        log.error(
            "the driver pod does not run the Verification (%s); correct its spec and create "
            "it again: %s",
            refusal.reason.value,
            refusal.message,
        )
        return REFUSED
    except Superseded as superseded:
        return _superseded(superseded)
    with tempfile.TemporaryDirectory(prefix="plimsoll-verification-") as work:
        try:
            return _run(start(Path(work)))
        except Superseded as superseded:
            return _superseded(superseded)


def _requested(
    options: argparse.Namespace,
) -> Callable[[Path], Run | Audit] | None:
    """Return a call that makes the run or the audit that the arguments ask for, from its temporary
    directory; None for a continuous run, which has a process of its own. Raises `Refusal`."""
    if is_audit(options.config):
        audited = load_audit(options.config, options.login, options.mirror_login)
        return partial(Audit, audited, publisher_for(audited.report))
    settings = requested.load(options.config, options.login, options.evidence)
    if options.resume is not None:
        settings = requested.resuming(settings, options.resume)
    if settings.mode == "Continuous":
        return None
    bucket = bucket_of(settings.evidence, options.bucket_login)

    def start(work: Path) -> Run:
        kept = Evidence(settings, work, bucket)
        return Run(settings, publisher_for(settings.report), work, kept)

    return start


def _supervised(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run a continuous run: as its driver if `--work` is stated, else as the process that keeps
    such a driver running. Return the exit code."""
    if options.work is None:
        with tempfile.TemporaryDirectory(prefix="plimsoll-continuous-") as work:
            module = "plimsoll_spark.verification"
            return keep_running([sys.executable, "-m", module, *arguments, "--work", work])
    settings = requested.load(options.config, options.login, options.evidence)
    bucket = bucket_of(settings.evidence, options.bucket_login)
    kept = Evidence(settings, options.work, bucket, KEPT_IN_BUCKET)
    run = ContinuousRun(settings, publisher_for(settings.report), kept)
    try:
        outcome = _unless_superseded(run, kept)
    except requested.Refusal as refusal:
        if refusal.reason is requested.Refused.EVIDENCE_UNUSABLE and run.was_begun():
            log.warning(
                "this driver process of the Verification ends, and a new one starts by itself and "
                "tries again; if this repeats, remove the cause: %s",
                refusal.message,
            )
            return RESUMABLE
        log.error(
            "the Verification cannot be run and gets no verdict (%s); remove the cause and "
            "create it again: %s",
            refusal.reason.value,
            refusal.message,
        )
        run.publish_outcome("Inconclusive", refusal.reason.value, refusal.message, "Failed")
        return REFUSED
    except NumbersUsed as ended:
        run.publish_outcome("Inconclusive", "DriveIncomplete", str(ended), "Failed")
        return REFUSED
    log.info(
        "the Verification ends with the verdict %s (%s): %s",
        outcome.verdict,
        outcome.reason,
        outcome.message,
    )
    return VERDICT_REACHED


def _unless_superseded(run: ContinuousRun, kept: Evidence) -> Outcome:
    """Execute the run, and return its outcome. Raises `Superseded` instead of any other error if
    another driver works on the run: it may be the cause, since it clears what this one left."""
    try:
        return run.execute()
    except Exception:
        kept.check()
        raise


def _superseded(superseded: Superseded) -> int:
    log.warning("%s; nothing needs to be done", superseded)
    return SUPERSEDED


def _run(run: Run | Audit) -> int:
    killed_before = cgroup.processes_killed()
    try:
        outcome = run.execute()
    except Superseded:
        raise
    except requested.Refusal as refusal:
        log.error(
            "the Verification cannot be run and gets no verdict (%s); remove the cause and "
            "create it again: %s",
            refusal.reason.value,
            refusal.message,
        )
        run.publish_broken(refusal.reason.value, refusal.message)
        return REFUSED
    except Exception as error:
        failure = failure_of(error, killed=cgroup.processes_killed() - killed_before)
        if isinstance(run, Run) and run.may_be_resumed:
            log.warning(
                "this driver pod of the Verification ends before the verdict; its Job starts "
                "another pod, which judges the records written so far; nothing needs to be done "
                "unless this repeats (%s): %s",
                *(failure.reason.value, failure.message),
                exc_info=True,
            )
            run.leave(failure.reason.value, failure.message)
            return RESUMABLE
        run.publish_broken(failure.reason.value, failure.message)
        raise
    log.info(
        "the Verification ends with the verdict %s (%s): %s",
        outcome.verdict,
        outcome.reason,
        outcome.message,
    )
    return VERDICT_REACHED


if __name__ == "__main__":
    sys.exit(main())
