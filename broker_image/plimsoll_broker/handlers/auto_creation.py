"""AutoCreation: creates topics on demand (`auto.create.topics.enable`).

Called by Metadata, which answers UNKNOWN_TOPIC_OR_PARTITION until the topic exists; clients retry.
The controller decides as for CreateTopics, by the rights of the client. Each name is requested once
at a time, and not again for a while. Source: Kafka's AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from itertools import islice

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import ask
from plimsoll_broker.handlers.mutation_quota import reserved
from plimsoll_broker.reporting.client_lines import ClientLines
from plimsoll_broker.server.client_quotas import Charges, in_steps
from plimsoll_broker.server.dispatch import SERVING
from plimsoll_core.cluster.topic_configs import AUTO_CREATE
from plimsoll_core.cluster.topic_names import CLUSTER_METADATA, check_form, is_internal
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import CreateTopics, NewTopic
from plimsoll_core.messages.security import OnBehalf

TIMEOUT_MS = 10_000
AGAIN_S = 1.0
NAMES_MAX = 1_000
"""Names requested now or a moment ago. Further names wait for a later request."""


class AutoCreation:
    """One for a broker. Its tasks end with the controller's answer or its timeout."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.enabled = is_enabled(view.configs)
        # Names requested now or less than `AGAIN_S` ago.
        self._recent: set[str] = set()
        self._asking: set[asyncio.Future[None]] = set()
        self._lines = ClientLines(logging.getLogger("plimsoll.topics"))

    def may_make(self, name: str) -> bool:
        """Return True if a topic of this name may be created on demand."""
        own = is_internal(name) or name == CLUSTER_METADATA
        return self.enabled and not own and check_form(name) is None

    def want(
        self, names: Iterable[str], charges: Charges | None = None, behalf: OnBehalf | None = None
    ) -> bool:
        """Request these topics, as far as the client's quota and rights allow (`charges`,
        `behalf`). Return True if there are any."""
        possible = dict.fromkeys(names)
        room = max(NAMES_MAX - len(self._recent), 0)
        new = list(islice((name for name in possible if name not in self._recent), room))
        # The controller decides the number of partitions; they are charged then.
        new = reserved(charges, [(name, 1) for name in new], strict=True)
        if new:
            self._ask_for(new, charges, behalf)
        return bool(possible)

    def _ask_for(self, new: list[str], charges: Charges | None, behalf: OnBehalf | None) -> None:
        self._recent.update(new)
        request = CreateTopics(topics=tuple(NewTopic(name=name) for name in new), behalf=behalf)
        task = asyncio.ensure_future(in_steps(charges, self._make(request, charges)))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _make(self, request: CreateTopics, charges: Charges | None) -> None:
        names = tuple(topic.name for topic in request.topics)
        owner = SERVING.get()
        who = "" if owner is None else owner.holder
        partitions: int | None = None
        try:
            answers = await ask(self._view, request, names, TIMEOUT_MS)
            if all(one.code != Code.REQUEST_TIMED_OUT for one in answers):
                partitions = sum(max(one.partitions, 0) for one in answers if not one.code)
            for answer in answers:
                became = f"was not made: {answer.message}" if answer.code else "was made"
                self._lines.info(who, f"topic {answer.name} {became}; asked for by {who!a}")
        finally:
            if charges is not None:
                charges.mutated(partitions)
            loop = asyncio.get_running_loop()
            loop.call_later(AGAIN_S, self._recent.difference_update, names)


def is_enabled(configs: Mapping[str, str]) -> bool:
    return configs.get(AUTO_CREATE, "false") == "true"
