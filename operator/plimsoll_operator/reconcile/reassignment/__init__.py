"""Reassignments: moves of replicas that users declare. The controller carries them out."""
