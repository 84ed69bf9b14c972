"""Whether a follower's fetch is of the lifetime in which its broker is registered.

Called by `replica.Replica` and by the handler of Fetch.  Source: the protocol's rule for Fetch, the
leader's side; KIP-903.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.errors import Code


def check_lifetime(registered: Broker | None, broker_epoch: int) -> Code:
    """NOT_LEADER_OR_FOLLOWER: that lifetime is over.  UNKNOWN_LEADER_EPOCH: nothing is known of it
    here; it may begin in metadata that has not arrived yet, so the asker tries again.  An epoch
    that is not committed proves nothing, however high it is.

    `registered`: the broker as in the image.
    """
    if registered is None or broker_epoch > registered.broker_epoch:
        return Code.UNKNOWN_LEADER_EPOCH
    if broker_epoch < registered.broker_epoch:
        return Code.NOT_LEADER_OR_FOLLOWER
    return Code.NONE
