"""The operator: Kubernetes resources in, the controller's decisions out."""
