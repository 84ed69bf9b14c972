"""The surroundings of processes: network, disks, the Kubernetes API server and its etcd."""
