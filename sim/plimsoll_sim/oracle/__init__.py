"""What is true of a cluster, from what etcd stored and brokers appended, not from what they say."""
