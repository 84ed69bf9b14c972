"""The table of rules for requests about topics, by request. Called by `controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.controller.topics.client_topics import (
    add_partitions,
    create_topics,
    delete_topics,
)
from plimsoll_core.controller.topics.config_changes import alter_configs
from plimsoll_core.controller.topics.declared_topics import declare, detach
from plimsoll_core.controller.topics.internal_topics import ensure_internal_topic
from plimsoll_core.controller.topics.topic_deletion import object_gone
from plimsoll_core.messages import requests as m
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    EnsureInternalTopic,
)

RULES: Mapping[type, Rule] = {
    m.CreateTopics: create_topics,
    m.DeleteTopics: delete_topics,
    AlterTopicConfigs: alter_configs,
    AddPartitions: add_partitions,
    EnsureInternalTopic: ensure_internal_topic,
    m.DeclareTopic: declare,
    m.TopicObjectGone: object_gone,
    m.DetachTopic: detach,
}
