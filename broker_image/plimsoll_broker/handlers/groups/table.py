"""The table of groups' handlers, from which `routes` builds a broker's dispatch."""

from __future__ import annotations

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.groups.delete_groups import DeleteGroupsHandler
from plimsoll_broker.handlers.groups.describe_groups import DescribeGroupsHandler
from plimsoll_broker.handlers.groups.find_coordinator import FindCoordinatorHandler
from plimsoll_broker.handlers.groups.heartbeat import HeartbeatHandler
from plimsoll_broker.handlers.groups.join_group import JoinGroupHandler
from plimsoll_broker.handlers.groups.leave_group import LeaveGroupHandler
from plimsoll_broker.handlers.groups.list_groups import ListGroupsHandler
from plimsoll_broker.handlers.groups.offset_commit import OffsetCommitHandler
from plimsoll_broker.handlers.groups.offset_delete import OffsetDeleteHandler
from plimsoll_broker.handlers.groups.offset_fetch import OffsetFetchHandler
from plimsoll_broker.handlers.groups.sync_group import SyncGroupHandler
from plimsoll_broker.server.dispatch import Handler
from plimsoll_wire.api_versions import ApiKey


def group_handlers(view: ClusterView, coordinators: Coordinators) -> dict[ApiKey, Handler]:
    """Everything that a coordinator answers, and where it is found."""
    aside = view.aside
    return {
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(view, coordinators.topics),
        ApiKey.OFFSET_COMMIT: OffsetCommitHandler(coordinators, aside),
        ApiKey.OFFSET_FETCH: OffsetFetchHandler(coordinators, aside),
        ApiKey.JOIN_GROUP: JoinGroupHandler(coordinators, aside),
        ApiKey.SYNC_GROUP: SyncGroupHandler(coordinators, aside),
        ApiKey.HEARTBEAT: HeartbeatHandler(coordinators, aside),
        ApiKey.LEAVE_GROUP: LeaveGroupHandler(coordinators, aside),
        ApiKey.OFFSET_DELETE: OffsetDeleteHandler(coordinators, aside),
        ApiKey.LIST_GROUPS: ListGroupsHandler(coordinators, aside),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(coordinators, aside),
        ApiKey.DELETE_GROUPS: DeleteGroupsHandler(coordinators, aside),
    }
