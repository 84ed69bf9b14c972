"""The operator: reconciles Kubernetes resources into decisions of the controller."""
