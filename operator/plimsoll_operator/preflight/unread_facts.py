"""Judges a fact that could not be read: a warning if the caller may not see it, else a failure.

Pure. Called by every check.
"""

from __future__ import annotations

from plimsoll_operator.preflight.facts import NotRead, Verdict


def unread(check: str, found: NotRead) -> Verdict:
    """The verdict of `check` without its fact."""
    if found.refused:
        return Verdict(check=check, result="warning", message=f"Not checked: {found.message}.")
    text = f"The API server is unreachable: {found.message}. Repeat when it responds."
    return Verdict(check=check, result="failed", message=text)
