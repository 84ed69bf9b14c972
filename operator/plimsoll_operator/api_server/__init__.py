"""An API server in memory: for unit tests, `plimsoll local` and the simulator, which have no other.

`server` answers requests, `transport` carries them, `workloads` and `garbage_collection` are the
controllers that a cluster has besides.  Held to one contract with a real API server
(`tests/plimsoll_operator/kube/contract.py`).
"""
