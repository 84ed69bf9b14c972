"""The first and the last step of every change of a client's topics: find the topic, and answer.

Called by `config_changes` and `client_topics`.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Topic
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.topics.internal_topics import reserved
from plimsoll_core.controller.topics.topic_creation import declared_elsewhere
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.topic_changes import TopicChanged


def found(turn: DecisionContext, name: str, times: int) -> Topic | Refusal:
    """Return the topic with this name. Return a refusal if there is none, or if the request names
    it more than once (`times`)."""
    if times > 1:
        return Refusal(
            reason=Reason.InvalidRequest, message="The request names this topic more than once."
        )
    topic_id = turn.image.topic_ids.get(name)
    if topic_id is not None:
        return turn.image.topics[topic_id]
    return check_form(name) or Refusal(
        reason=Reason.UnknownTopicOrPartition, message=f"There is no topic {name}."
    )


def not_a_clients(topic: Topic, instead: str) -> Refusal | None:
    """Return a refusal if clients may not change the topic, since it is internal or an object
    declares it, or None. `instead` says in the message what to do."""
    return reserved(topic.name) or declared_elsewhere(topic, instead)


def told(name: str, refusal: Refusal | None) -> TopicChanged:
    if refusal is None:
        return TopicChanged(topic=name)
    return TopicChanged(
        topic=name,
        code=refusal.reason.code,
        reason=refusal.reason.name,
        message=refusal.message,
    )
