"""What is remembered of the decisions about one connection, and how much.

Used by `Rights`.  A client names what it likes: names of anything that there is not, of any length.
Of the topics that there are each may be remembered, of all else little.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_core.security.state import Security

TOPICS_MAX = 10_000
"""Decisions about topics that there are."""
OTHERS_MAX = 100
NAME_MAX = 255
"""Characters, of what else is remembered."""

Question = tuple[AclOperation, ResourceType, str]


class Decisions(NamedTuple):
    """One value, since long requests are read in a thread while the loop applies what takes rights
    away.  `security`: what they were made by."""

    security: Security
    topics: dict[Question, bool]
    others: dict[Question, bool]

    def remember(self, question: Question, *, there_is: bool, allowed: bool) -> None:
        """`there_is`: such a topic.  Whoever asks about more is decided about anew."""
        if there_is:
            decided, most = self.topics, TOPICS_MAX
        elif len(question[2]) <= NAME_MAX:
            decided, most = self.others, OTHERS_MAX
        else:
            return
        if len(decided) >= most:
            decided.clear()
        decided[question] = allowed
