"""Errors of `kubectl plimsoll`, each a sentence for its user."""

from __future__ import annotations

from plimsoll_operator.kube.errors import ApiError


class Problem(Exception):
    """The command prints this sentence and ends."""


class ViewUnavailable(Problem):
    """No operator that leads the cluster answers; some verbs then show less."""


def told(error: ApiError) -> str:
    """Return the API server's message, or the status if it sent none."""
    return f"{error.reply or f'status {error.status}'}."
