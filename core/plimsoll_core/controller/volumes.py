"""Whether the volume of a broker that is gone may be deleted.

Called for ReleaseVolume and VolumeGone.  Whoever deletes the claim does so because the release is
committed, by the claim's uid, and a successor finishes it; so nothing that was decided long ago
can reach the volume of a broker that came back.
"""

from __future__ import annotations

from plimsoll_core.controller.turn import Turn
from plimsoll_core.member_messages import ReleaseVolume, VolumeGone
from plimsoll_core.messages import Answer, Done
from plimsoll_core.reasons import Reason, Refusal
from plimsoll_core.records import VolumeForgotten, VolumeReleased


def release(turn: Turn, request: ReleaseVolume) -> Answer | Refusal:
    image, broker_id = turn.image, request.broker_id
    if request.pvc_uid in image.released:
        return Done()
    why = None
    if broker_id in image.hosted:
        why = f"{len(image.hosted[broker_id])} partitions have a replica there"
    elif broker_id in image.members:
        why = "the broker is a member"
    elif broker_id in image.brokers:
        why = "the broker is still registered"
    if why:
        return Refusal(
            reason=Reason.VolumeInUse, message=f"Broker {broker_id}'s volume is kept: {why}."
        )
    turn.add(VolumeReleased(cause="removed", broker_id=broker_id, pvc_uid=request.pvc_uid))
    return Done()


def gone(turn: Turn, request: VolumeGone) -> Answer:
    if request.pvc_uid in turn.image.released:
        turn.add(VolumeForgotten(cause="its claim is gone", pvc_uid=request.pvc_uid))
    return Done()
