"""The table of metadata and admin handlers, from which `assembly` builds a broker's dispatch."""

from __future__ import annotations

from plimsoll_broker.handlers.alter_configs import alter_configs
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.create_partitions import create_partitions
from plimsoll_broker.handlers.create_topics import create_topics
from plimsoll_broker.handlers.delete_topics import delete_topics
from plimsoll_broker.handlers.describe_cluster import describe_cluster
from plimsoll_broker.handlers.describe_configs import describe_configs
from plimsoll_broker.handlers.describe_topic_partitions import describe_topic_partitions
from plimsoll_broker.handlers.elect_leaders import elect_leaders
from plimsoll_broker.handlers.list_config_resources import list_config_resources
from plimsoll_broker.handlers.metadata import metadata
from plimsoll_broker.handlers.reassignments import alter_reassignments, list_reassignments
from plimsoll_broker.handlers.security.acls import create_acls, delete_acls, describe_acls
from plimsoll_broker.handlers.security.client_quotas import alter_quotas, describe_quotas
from plimsoll_broker.handlers.security.scram_credentials import alter_scram, describe_scram
from plimsoll_broker.server.dispatch import Handler
from plimsoll_wire.api_versions import ApiKey


def admin_handlers(view: ClusterView) -> dict[ApiKey, Handler]:
    """Return the handlers that read the image or forward to the controller."""
    return {
        ApiKey.METADATA: metadata(view),
        ApiKey.DESCRIBE_CLUSTER: describe_cluster(view),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions(view),
        ApiKey.DESCRIBE_CONFIGS: describe_configs(view),
        ApiKey.LIST_CONFIG_RESOURCES: list_config_resources(view),
        ApiKey.CREATE_TOPICS: create_topics(view),
        ApiKey.DELETE_TOPICS: delete_topics(view),
        ApiKey.CREATE_PARTITIONS: create_partitions(view),
        ApiKey.ALTER_CONFIGS: alter_configs(view),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs(view),
        ApiKey.ELECT_LEADERS: elect_leaders(view),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_reassignments(view),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments(view),
        ApiKey.DESCRIBE_ACLS: describe_acls(view),
        ApiKey.CREATE_ACLS: create_acls(view),
        ApiKey.DELETE_ACLS: delete_acls(view),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_quotas(view),
        ApiKey.ALTER_CLIENT_QUOTAS: alter_quotas(view),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_scram(view),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_scram(view),
    }
