"""What one decision about a classic group adds up to, step by step: it becomes the outcome."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refused
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import GroupRecord


class Effects:
    """`reply` and `refuse` may name whoever is parked."""

    __slots__ = ("_replies", "records", "then")

    def __init__(self) -> None:
        self._replies: list[Reply] = []
        # At most one record stands here: a decision begins a group, or ends a generation.
        self.records: list[GroupRecord] = []
        # As in the outcome.
        self.then: Callable[[Code], Operation] | None = None

    def reply(self, token: object, answer: object) -> None:
        self._replies.append(Reply(token, answer))

    def refuse(self, token: object, code: Code, message: str = "") -> None:
        self._replies.append(refused(token, code, message))

    def outcome(
        self, group_id: str, parked: object = None
    ) -> CoordinatorOutcome[GroupRecord, Operation]:
        """`parked`: the token of the request at hand, if it may still be waiting."""
        answered = any(reply.token is parked for reply in self._replies)
        return CoordinatorOutcome(
            key=group_id,
            records=tuple(self.records),
            replies=tuple(self._replies),
            then=self.then,
            parked=parked is not None and not answered,
        )
