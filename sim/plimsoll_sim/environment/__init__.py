"""What processes find around them: network, disks, the Kubernetes API server and its etcd."""
