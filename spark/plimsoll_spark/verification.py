"""`python -m plimsoll_spark.verification --config FILE`: writes to a topic, and verifies its log.

Run by the operator's Job, or by hand. Exit code 0 for any verdict reached (read it in
`verdict.json`), 1 for a run that failed, 2 for a refused request.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from plimsoll_spark import settings as requested
from plimsoll_spark.audit import Audit
from plimsoll_spark.audit_settings import is_audit, load_audit
from plimsoll_spark.publish import Publisher, publisher_for
from plimsoll_spark.run import Run
from plimsoll_spark.verdict import Reason

VERDICT_REACHED, REFUSED = 0, 2

log = logging.getLogger("plimsoll_spark")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verification that the arguments name. Return the exit code: 0 if it reached a
    verdict, 2 if it was refused. Raises the error of a run that failed, which makes the exit code
    1."""
    parser = argparse.ArgumentParser(prog="plimsoll_spark.verification")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--login", type=Path, metavar="DIR", help="where the Secret of a User is mounted"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        publish, start = _requested(options.config, options.login)
    except requested.Refusal as refusal:
        log.error("refused (%s): %s", refusal.reason.value, refusal.message)
        return REFUSED
    with tempfile.TemporaryDirectory(prefix="plimsoll-verification-") as work:
        return _run(start(publish, Path(work)))


def _requested(
    config: Path, login: Path | None
) -> tuple[Publisher, Callable[[Publisher, Path], Run | Audit]]:
    """Return where to publish, and a call that makes the run or the audit that a file asks for.
    Raises `Refusal`."""
    if is_audit(config):
        audited = load_audit(config, login)
        return publisher_for(audited.report), partial(Audit, audited)
    settings = requested.load(config, login)
    return publisher_for(settings.report), partial(Run, settings)


def _run(run: Run | Audit) -> int:
    try:
        outcome = run.execute()
    except requested.Refusal as refusal:
        log.error("refused (%s): %s", refusal.reason.value, refusal.message)
        run.publish_broken(refusal.reason.value, refusal.message)
        return REFUSED
    except Exception as error:
        run.publish_broken(Reason.RUN_BROKE.value, f"{type(error).__name__}: {error}"[:1000])
        raise
    log.info("%s (%s): %s", outcome.verdict, outcome.reason, outcome.message)
    return VERDICT_REACHED


if __name__ == "__main__":
    sys.exit(main())
