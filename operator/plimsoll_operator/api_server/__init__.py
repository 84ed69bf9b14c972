"""An API server in memory, for unit tests, `plimsoll local` and the simulator.

`server` answers requests and `transport` carries them; `workloads` and `garbage_collection` are the
controllers that a cluster also runs. One contract holds for it and for a real API server
(`tests/plimsoll_operator/kube/contract.py`).
"""
