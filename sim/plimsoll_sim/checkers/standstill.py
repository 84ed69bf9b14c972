"""Checks NoStandstill: a connection that paused because its peer did not read resumes once the peer
has read.

Checked after each step of a broker, in runs in which a kernel's buffers are bounded. A peer that
gives up and reconnects would hide a connection that has stopped for good.
"""

from __future__ import annotations

from plimsoll_broker.server.connection_flow import OUTPUT_FULL, FlowState
from plimsoll_broker.server.connection_session import Session
from plimsoll_net.tls_connection import TlsConnection
from plimsoll_sim.environment.connection_end import End
from plimsoll_sim.environment.network import Network
from plimsoll_sim.environment.send_buffers import BoundedEnd
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.partition_ghost import Violation


def look(network: Network, host: BrokerHost) -> None:
    """Check the connections of a broker. A broker that is stopped (SIGSTOP) is not checked."""
    process = host.process
    if network.make_end is End:
        return
    if process is None or not process.alive or process.paused:
        return
    for end in network.ends:
        if end.process is process and isinstance(end, BoundedEnd) and not end.is_closing():
            _check(end)


def _check(end: BoundedEnd) -> None:
    served, unsent = end.protocol, end.get_write_buffer_size()
    if isinstance(served, TlsConnection):
        if served._choked and not unsent:
            raise _standstill(end, "TLS has paused")
        wants = served._reading and not served._held and not served._choked
        if wants and not end.is_reading():
            raise _standstill(end, "TLS does not read")
        if served._transport is not None:
            unsent = served._transport.get_write_buffer_size()
        served = served.session
    if not isinstance(served, Session) or unsent:
        return
    flow = served._flow
    if flow.held & OUTPUT_FULL:
        raise _standstill(end, "a session has paused")
    if flow.waiting and (first := flow.waiting[0]).future is not None and first.future.done():
        raise _standstill(end, "a session does not answer")
    if not flow.reading and not flow.waiting and not _is_held_up(served):
        raise _standstill(end, "a session does not read")


def _is_held_up(session: Session) -> bool:
    """Return True if the session waits for something other than its peer."""
    flow, starved = session._flow, session.activity.starved_s is not None
    held = flow.held or flow.state is not FlowState.OPEN
    return bool(held or starved or not session._connection.account.may_serve)


def _standstill(end: BoundedEnd, what: str) -> Violation:
    return Violation(
        "NoStandstill", f"{end.process}: {what}, and {end.peer.process} has taken all there was"
    )
