"""The backup of a cluster's metadata log: writes it continuously to a place outside of Kubernetes,
and reads it back as a copy of the metadata."""
