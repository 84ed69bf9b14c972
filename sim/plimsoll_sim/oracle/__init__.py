"""The true state of a cluster. It is computed from the data that etcd stored and brokers appended,
not from their reports.
"""
