"""ProduceAnswer: the results of one Produce request, some of which wait for a commit or a flush.

Made by the handler; replicas hold the waits (`AckWaiter`).
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_broker.handler_failures import Answering
from plimsoll_broker.handlers.produce_rights import DeniedTopics
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.server.reply_later import ReplyLater
from plimsoll_core.errors import Code
from plimsoll_wire.produce import ProducedPartition, ProduceRequest, encode_response

Results = list[tuple[str, list[ProducedPartition]]]


class ProduceAnswer:
    """One request's results, complete once `whole` was called and no partition is pending."""

    __slots__ = (
        "_charges",
        "_errors",
        "_future",
        "_remaining",
        "denied",
        "failed",
        "request",
        "results",
        "version",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        traffic: Traffic,
        denied: DeniedTopics,
    ) -> None:
        self.version = context.api_version
        self.denied = denied
        self._charges = context.charges
        self._errors = traffic.errors
        self.request = request
        self.results: Results = [(topic.name, []) for topic in request.topics]
        self.failed = False
        self._remaining = 1  # one until `whole`
        self._future: ReplyLater | None = None

    @property
    def throttle_ms(self) -> int:
        """The throttle time in the reply."""
        return 0 if self._charges is None else int(self._charges.throttle_ms)

    def add(self, topic: int, result: ProducedPartition) -> None:
        if result.code != Code.NONE:
            self.failed = True
            self._errors["PRODUCE", result.code] += 1
        self.results[topic][1].append(result)

    def waiter(self, topic: int, note: Callable[[int], None] | None) -> ProduceAck:
        """Return the token for a pending partition, the one added last. `note` is called with the
        error code if the batch is not acknowledged."""
        self._remaining += 1
        return ProduceAck(self, topic, len(self.results[topic][1]) - 1, note)

    def answered(self, topic: int, result: int, code: int) -> None:
        """Set the result of the partition at these positions in `results`."""
        if code != Code.NONE:
            self._errors["PRODUCE", code] += 1
            partitions = self.results[topic][1]
            partitions[result] = ProducedPartition(partitions[result].partition, code)
        self._remaining -= 1
        # If the client has disconnected, its session has cancelled the future.
        if not self._remaining and self._future is not None and not self._future.done():
            with Answering(self._future):
                reply = encode_response(self.version, self.results, (), self.throttle_ms)
                self._future.set_result(reply)

    def whole(self) -> ReplyLater | None:
        """No partition is added any more. Return the future of the reply, or None if nothing is
        pending. The reference to the request is dropped, to free its batches' memory while the
        commit is awaited."""
        del self.request
        self._remaining -= 1
        if self._remaining:
            self._future = ReplyLater()
        return self._future


class ProduceAck:
    """The token of one partition's waiter."""

    __slots__ = ("_answering", "_note", "_result", "_topic")

    def __init__(
        self,
        answering: ProduceAnswer,
        topic: int,
        result: int,
        note: Callable[[int], None] | None,
    ) -> None:
        self._answering = answering
        self._topic = topic
        self._result = result
        self._note = note

    def answer(self, code: int) -> None:
        if code != Code.NONE and self._note is not None:
            self._note(code)
        self._answering.answered(self._topic, self._result, code)
