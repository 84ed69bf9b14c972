"""The true state of a cluster, taken from what etcd stored and brokers appended, not from what
they report."""
