"""The table of groups' handlers, from which `routes` builds a broker's dispatch."""

from __future__ import annotations

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.connection_lines import ConnectionLines
from plimsoll_broker.handlers.groups.asking import GroupApi, GroupHandler
from plimsoll_broker.handlers.groups.delete_groups import DELETE_GROUPS
from plimsoll_broker.handlers.groups.describe_groups import DESCRIBE_GROUPS
from plimsoll_broker.handlers.groups.find_coordinator import FindCoordinatorHandler
from plimsoll_broker.handlers.groups.heartbeat import HEARTBEAT
from plimsoll_broker.handlers.groups.join_group import JOIN_GROUP
from plimsoll_broker.handlers.groups.leave_group import LEAVE_GROUP
from plimsoll_broker.handlers.groups.list_groups import LIST_GROUPS
from plimsoll_broker.handlers.groups.newer_protocols import refuse_heartbeat
from plimsoll_broker.handlers.groups.offset_commit import OFFSET_COMMIT
from plimsoll_broker.handlers.groups.offset_delete import OFFSET_DELETE
from plimsoll_broker.handlers.groups.offset_fetch import OFFSET_FETCH
from plimsoll_broker.handlers.groups.sync_group import SYNC_GROUP
from plimsoll_broker.server.dispatch import Handler
from plimsoll_wire.api_versions import ApiKey

_APIS: dict[ApiKey, GroupApi] = {
    ApiKey.OFFSET_COMMIT: OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: OFFSET_FETCH,
    ApiKey.JOIN_GROUP: JOIN_GROUP,
    ApiKey.SYNC_GROUP: SYNC_GROUP,
    ApiKey.HEARTBEAT: HEARTBEAT,
    ApiKey.LEAVE_GROUP: LEAVE_GROUP,
    ApiKey.OFFSET_DELETE: OFFSET_DELETE,
    ApiKey.LIST_GROUPS: LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS: DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS: DELETE_GROUPS,
}


def group_handlers(view: ClusterView, coordinators: Coordinators) -> dict[ApiKey, Handler]:
    """Return the handlers of the group APIs."""
    lines = ConnectionLines()
    found = {key: GroupHandler(api, coordinators, view.aside, lines) for key, api in _APIS.items()}
    return {
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(view, coordinators.topics),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: refuse_heartbeat,
        ApiKey.SHARE_GROUP_HEARTBEAT: refuse_heartbeat,
        **found,
    }
