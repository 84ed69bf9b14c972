"""Decisions: the cached authorization decisions of one connection, bounded.

Used by `Rights`. A client may name anything, of any length. Decisions about existing topics are
cached; of all other names only few are.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_core.security.state import Security

TOPICS_MAX = 10_000
"""Decisions about existing topics."""
OTHERS_MAX = 100
NAME_MAX = 255
"""Characters of other names that are cached."""

Question = tuple[AclOperation, ResourceType, str]


class Decisions(NamedTuple):
    """One value, since threads read it for long requests while the loop applies new rules.
    `security`: the rules that the decisions were made by."""

    security: Security
    topics: dict[Question, bool]
    others: dict[Question, bool]

    def remember(self, question: Question, *, there_is: bool, allowed: bool) -> None:
        """Cache a decision. `there_is`: the topic exists. A full cache is cleared."""
        if there_is:
            decided, most = self.topics, TOPICS_MAX
        elif len(question[2]) <= NAME_MAX:
            decided, most = self.others, OTHERS_MAX
        else:
            return
        if len(decided) >= most:
            decided.clear()
        decided[question] = allowed
