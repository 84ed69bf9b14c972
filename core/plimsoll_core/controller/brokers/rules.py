"""The table of rules for requests about brokers, by request. Called by `controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.brokers.broker_removal import set_leaving, unregister, volume_gone
from plimsoll_core.controller.brokers.declared_listeners import declare_listeners
from plimsoll_core.controller.brokers.dismissed_copies import dismiss_copy
from plimsoll_core.controller.brokers.fencing import proven_dead
from plimsoll_core.controller.brokers.heartbeat import heartbeat
from plimsoll_core.controller.brokers.hibernation import set_hibernation
from plimsoll_core.controller.brokers.membership import set_members, settle_newcomers
from plimsoll_core.controller.brokers.producer_id_blocks import allocate
from plimsoll_core.controller.brokers.registration import register
from plimsoll_core.controller.brokers.restart_grants import request_restart, withdraw_restart
from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.messages import brokers as b
from plimsoll_core.messages import requests as m

RULES: Mapping[type, Rule] = {
    m.RegisterBroker: register,
    m.Heartbeat: heartbeat,
    m.BrokerProvenDead: proven_dead,
    m.AllocateProducerIds: allocate,
    m.SetMembers: set_members,
    b.SettleNewcomers: settle_newcomers,
    b.SetLeaving: set_leaving,
    b.UnregisterBroker: unregister,
    b.VolumeGone: volume_gone,
    b.DismissCopy: dismiss_copy,
    b.RequestRestart: request_restart,
    b.WithdrawRestart: withdraw_restart,
    b.DeclareListeners: declare_listeners,
    b.SetHibernation: set_hibernation,
}
