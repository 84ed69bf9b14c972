"""`python -m plimsoll_spark.verification --config FILE`: writes to a topic, and verifies its log.

Run by the operator's Job, or by hand. If the evidence of the run exists, its driver has died: the
run is judged by the ledger that it left, and nothing is written. Exit code 0 for any verdict
reached (read it in `verdict.json`), 1 for a run that failed, 2 for a refused request, 3 for a run
that failed and that the next driver judges.
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
from plimsoll_spark.audit import Audit
from plimsoll_spark.audit_settings import is_audit, load_audit
from plimsoll_spark.continuous import KEPT_IN_BUCKET, ContinuousRun
from plimsoll_spark.continuous_drive import NumbersUsed
from plimsoll_spark.evidence import Evidence, bucket_of
from plimsoll_spark.failures import failure_of
from plimsoll_spark.publish import Publisher, publisher_for
from plimsoll_spark.run import Run
from plimsoll_spark.supervisor import keep_running

VERDICT_REACHED, REFUSED, RESUMABLE = 0, 2, 3

log = logging.getLogger("plimsoll_spark")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verification that the arguments name. Return the exit code: 0 if it reached a
    verdict, 2 if it was refused, 3 if the next driver is to judge it. Raises the error of a run
    that failed, which makes the exit code 1."""
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
        publish, start = _requested(options)
        if start is None:
            return _supervised(options, list(sys.argv[1:] if arguments is None else arguments))
    except requested.Refusal as refusal:
        log.error("the Verification is not run (%s): %s", refusal.reason.value, refusal.message)
        return REFUSED
    with tempfile.TemporaryDirectory(prefix="plimsoll-verification-") as work:
        return _run(start(publish, Path(work)))


def _requested(
    options: argparse.Namespace,
) -> tuple[Publisher, Callable[[Publisher, Path], Run | Audit] | None]:
    """Return where to publish, and a call that makes the run or the audit that the arguments ask
    for; None for a continuous run, which has a process of its own. Raises `Refusal`."""
    if is_audit(options.config):
        audited = load_audit(options.config, options.login, options.mirror_login)
        return publisher_for(audited.report), partial(Audit, audited)
    settings = requested.load(options.config, options.login, options.evidence)
    if options.resume is not None:
        settings = requested.resuming(settings, options.resume)
    if settings.mode == "Continuous":
        return publisher_for(settings.report), None
    bucket = bucket_of(settings.evidence, options.bucket_login)

    def start(publish: Publisher, work: Path) -> Run:
        return Run(settings, publish, work, Evidence(settings, work, bucket))

    return publisher_for(settings.report), start


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
        outcome = run.execute()
    except requested.Refusal as refusal:
        if refusal.reason is requested.Refused.EVIDENCE_UNUSABLE and run.was_begun():
            log.error(
                "the driver of the Verification ends, and a new driver tries again: %s",
                refusal.message,
            )
            return RESUMABLE
        log.error(
            "the run of the Verification is refused and ends without a verdict (%s): %s",
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


def _run(run: Run | Audit) -> int:
    killed_before = cgroup.processes_killed()
    try:
        outcome = run.execute()
    except requested.Refusal as refusal:
        log.error(
            "the run of the Verification is refused and ends without a verdict (%s): %s",
            refusal.reason.value,
            refusal.message,
        )
        run.publish_broken(refusal.reason.value, refusal.message)
        return REFUSED
    except Exception as error:
        failure = failure_of(error, killed=cgroup.processes_killed() - killed_before)
        if isinstance(run, Run) and run.may_be_resumed:
            log.exception(
                "the run of the Verification ends without a verdict (%s): %s; the next driver "
                "judges the ledger of the run",
                *(failure.reason.value, failure.message),
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
