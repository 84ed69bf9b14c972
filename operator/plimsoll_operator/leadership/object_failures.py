"""ObjectFailures: limits the effect of a bug in handling one object to one pass over that object.

Only this module decides so: for the passes of the reconcile queue, for rendering statuses and for
the checks of a term's tasks (`LedCluster`). The bug is counted, logged with its traceback, and
shown in the status of the object that it concerns, or of the LogCluster if it concerns none. The
caller retries, and work on other objects continues. The commit path is not covered: bugs there are
raised. Source: docs/design/009-exceptions.md.
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
from plimsoll_operator.reconcile.effects import TermEffects
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shown_state import ObjectFailure
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.work_queue import PassFailed, Retry
from plimsoll_operator.status.status_writer import StatusDraft, Target

ENDS_TERM = frozenset({Task.LOG})
"""Tasks of which a bug ends the term: they repair the metadata log, on which the next controller
depends."""


class ObjectFailures:
    """Records the bugs met by one term in handling single objects, and decides if a bug ends only
    one pass or the whole term."""

    def __init__(self, effects: TermEffects, failures: ControlFailures) -> None:
        self._effects = effects
        self._term = effects.term
        self._failures = failures

    @contextmanager
    def of_pass(self, work: Work) -> Iterator[None]:
        """Return the context in which to run a reconcile pass. Within it, a bug that concerns one
        object is recorded, and the context raises `PassFailed`. An error of the API server becomes
        `Retry`. Any other error is raised and ends the term. A pass without a bug clears the record
        of an earlier one for the same work."""
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
            raise PassFailed(
                f"an internal error of the operator, please report it: {error!r}"
            ) from None
        self.over(str(work))

    @contextmanager
    def of_look(self, what: str, target: Target) -> Iterator[None]:
        """Return the context in which to run `what`, a check of one object outside the passes. A
        bug that concerns one object is recorded and swallowed; any other bug is raised. A check
        without a bug clears the record of an earlier one."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # `met` decides, and raises it
            self.met(what, "Look", target, error)
        else:
            self.over(what)

    def met(self, what: str, kind: str, target: Target, error: Exception) -> None:
        """Record a bug that the activity `what` met in handling `target`, count it under the metric
        label `kind`, and render the status of `target` again, to show the bug. Raise the bug if it
        concerns more than that object."""
        self.remember(what, kind, target, error)
        self._shown(target)

    def over(self, what: str) -> None:
        """Note that the last attempt of `what` met no bug, and no longer show an earlier one."""
        if (failure := self._term.shown.failures.pop(what, None)) is not None:
            self._shown(failure.target)

    def remember(self, what: str, kind: str, target: Target, error: Exception) -> None:
        """Record a bug as `met` does, without rendering the status of `target` again."""
        if not is_of_one_object(error):
            raise error
        costs = f'only the work "{what}"; the operator tries that again within a minute'
        self._failures.met(kind, error, costs)
        where = f"{type(error).__name__} in {_place(error.__traceback__)}"
        uid = registry.uid_of(self._term, target)
        self._term.shown.failures[what] = ObjectFailure(target=target, uid=uid, where=where)
        cause = registry.bugs_of_cluster(self._term)
        if cause is not None:
            self._effects.stall(StallSource.BUG, cause)

    def _shown(self, target: Target) -> None:
        if registry.bugs_of_cluster(self._term) is None:
            self._effects.unstall(StallSource.BUG)
        self._effects.mark(target)


class MadeStatuses:
    """The `StatusFailures` that a term passes to its status writer: records bugs in rendering or
    writing a status in `ObjectFailures`."""

    def __init__(self, term: Term, failures: ObjectFailures) -> None:
        self._term = term
        self._failures = failures

    def met(self, target: Target, error: Exception) -> StatusDraft | None:
        """Record the bug and return a status that shows it, or None if the object does not exist.
        Raises the bug if it concerns more than that object. The target is not marked, since a mark
        would render it again at once."""
        self._failures.remember(_status_of(target), "Status", target, error)
        return registry.bare_draft(self._term, target, ready=None)

    def over(self, target: Target) -> None:
        self._failures.over(_status_of(target))


def _status_of(target: Target) -> str:
    return f"the status of {target.kind.kind} {target.namespace}/{target.name}"


def word_of(task: Task) -> str:
    """Return the label of a task's passes in the metric of internal errors."""
    return "Reconcile" + task.value.title().replace(" ", "")


def _place(traceback: TracebackType | None) -> str:
    """Return the file and line of the innermost frame in the operator's own source, "?" if there is
    none. Statuses show this instead of the exception's text: the text may quote a Secret, and one
    that differs each time would cause a write each time."""
    place = "?"
    for frame in extract_tb(traceback):
        path = PurePath(frame.filename)
        at = [i for i, part in enumerate(path.parts) if part.startswith(OURS)]
        if at:
            place = f"{'/'.join(path.parts[at[-1] :])}:{frame.lineno}"
    return place
