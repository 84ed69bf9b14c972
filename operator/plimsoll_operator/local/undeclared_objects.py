"""Drops objects that files declared at an earlier start and no longer declare.

Called by `start`. Another LogCluster is dropped, and each Reassignment, Rebalance, Verification or
User in no file; topics stay, and so do fields that others applied.
"""

from __future__ import annotations

from plimsoll_operator.kube import resources
from plimsoll_operator.local.documents import KIND_OF, Documents
from plimsoll_operator.local.kept_objects import LocalObjects


def drop_undeclared(objects: LocalObjects, documents: Documents) -> None:
    declared = {(KIND_OF[type(one).__name__], one.metadata.uid) for one in documents.others}
    for stored in list(objects.of_files(resources.LOG_CLUSTERS)):
        if stored.key != documents.cluster.key:
            objects.drop(stored)
    for kind in (*resources.RUN_ONCE, resources.USERS):
        for stored in list(objects.of_files(kind)):
            if (kind, stored.metadata["uid"]) not in declared:
                objects.drop(stored)
