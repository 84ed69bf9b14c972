"""An API server in memory, for unit tests, `plimsoll local` and the simulator.

`server` answers requests; `kubelets` and `garbage_collection` are controllers that a cluster also
runs. One contract holds for it and for a real API server
(`tests/plimsoll_operator/kube/contract.py`).
"""
