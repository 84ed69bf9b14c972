"""What a bug costs that is met while a led cluster's objects are looked after: one object's pass.

The one place that decides so, for the passes of the reconcile queue, for the making of statuses and
for the looks of a term's tasks (`LedCluster`).  The bug is counted, logged with its traceback, and
shown by the object that it concerns, or by the LogCluster where there is none; whoever met it tries
again, and the others go on.  Never decides for the commit path: its bugs pass through.
Source: docs/design/009-exceptions.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from traceback import extract_tb
from types import TracebackType

from plimsoll_operator.control_failures import OURS, ControlFailures, is_of_one_object
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.reconcile import registry
from plimsoll_operator.reconcile.reconcile_term import ObjectFailure, Task, Term, Work
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.work_queue import PassFailed, Retry
from plimsoll_operator.status.status_writer import StatusDraft, Target

ENDS_TERM = frozenset({Task.LOG})
"""Work on the metadata log itself: the next controller stands on it."""


class ObjectFailures:
    """Of one term."""

    def __init__(self, term: Term, failures: ControlFailures) -> None:
        self._term = term
        self._failures = failures

    @contextmanager
    def of_pass(self, work: Work) -> Iterator[None]:
        """One pass of a reconciler.  Raises `Retry` for what is tried again, and what ends the
        term."""
        try:
            yield
        except Retry:
            self.over(str(work))
            raise
        except ApiError as error:  # the API server's fault, and the outcome may be unknown
            raise Retry(str(error)) from error
        except Exception as error:
            if work.task in ENDS_TERM:
                raise
            self.met(str(work), word_of(work.task), registry.target_of(self._term, work), error)
            raise PassFailed(f"a bug: {error!r}") from None
        self.over(str(work))

    @contextmanager
    def of_look(self, what: str, target: Target) -> Iterator[None]:
        """A look at one object, beside the passes: goes on after a bug."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # `met` decides, and raises it
            self.met(what, "Look", target, error)
        else:
            self.over(what)

    def met(self, what: str, kind: str, target: Target, error: Exception) -> None:
        """`what` met a bug, in looking after `target`, which shows it.  Raises the bug if it is not
        the matter of that object alone."""
        self.remember(what, kind, target, error)
        self._shown(target)

    def over(self, what: str) -> None:
        """The last try met none."""
        if (failure := self._term.failures.pop(what, None)) is not None:
            self._shown(failure.target)

    def remember(self, what: str, kind: str, target: Target, error: Exception) -> None:
        """`met`, without a mark of the object."""
        if not is_of_one_object(error):
            raise error
        costs = f"{what}; only this reconcile failed, and it is retried within a minute"
        self._failures.met(kind, error, costs)
        where = f"{type(error).__name__} in {_place(error.__traceback__)}"
        uid = registry.uid_of(self._term, target)
        self._term.failures[what] = ObjectFailure(target=target, uid=uid, where=where)
        cause = registry.bugs_of_cluster(self._term)
        if cause is not None:
            self._term.stall(StallSource.BUG, cause)

    def _shown(self, target: Target) -> None:
        if registry.bugs_of_cluster(self._term) is None:
            self._term.unstall(StallSource.BUG)
        self._term.mark(target)


class MadeStatuses:
    """`StatusFailures` of a term's status writer."""

    def __init__(self, term: Term, failures: ObjectFailures) -> None:
        self._term = term
        self._failures = failures

    def met(self, target: Target, error: Exception) -> StatusDraft | None:
        """Not marked: that would be another try at once."""
        self._failures.remember(_status_of(target), "Status", target, error)
        return registry.bare_draft(self._term, target, ready=None)

    def over(self, target: Target) -> None:
        self._failures.over(_status_of(target))


def _status_of(target: Target) -> str:
    return f"the status of {target.kind.kind} {target.namespace}/{target.name}"


def word_of(task: Task) -> str:
    """What the metrics call its passes."""
    return "Reconcile" + task.value.title().replace(" ", "")


def _place(traceback: TracebackType | None) -> str:
    """The innermost line of ours.  No word of the exception's own stands in a status: it may quote
    a Secret, and one that differs each time would be written each time."""
    place = "?"
    for frame in extract_tb(traceback):
        path = PurePath(frame.filename)
        at = [i for i, part in enumerate(path.parts) if part.startswith(OURS)]
        if at:
            place = f"{'/'.join(path.parts[at[-1] :])}:{frame.lineno}"
    return place
