"""What `kubectl plimsoll` cannot do, in a sentence for the person who asked."""

from __future__ import annotations

from plimsoll_operator.kube.errors import ApiError


class Problem(Exception):
    """The command ends with this sentence."""


class ViewUnavailable(Problem):
    """No operator that leads the cluster answers: some verbs have less to tell then."""


def told(error: ApiError) -> str:
    """The API server's own words, with the status where it says nothing."""
    return f"{error.reply or f'status {error.status}'}."
