"""The table of rules for requests about ISRs and leaders, by request. Called by
`controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.controller.partitions.alter_partition import alter_partition
from plimsoll_core.controller.partitions.failed_disks import report_failed
from plimsoll_core.controller.partitions.leader_elections import elect_leaders, name_leaders
from plimsoll_core.controller.partitions.unclean_recovery import report
from plimsoll_core.messages import requests as m
from plimsoll_core.messages.elections import ElectLeaders, NameLeaders

RULES: Mapping[type, Rule] = {
    m.AlterPartition: alter_partition,
    m.ReportReplicaLogs: report,
    m.ReportFailedReplicas: report_failed,
    ElectLeaders: elect_leaders,
    NameLeaders: name_leaders,
}
