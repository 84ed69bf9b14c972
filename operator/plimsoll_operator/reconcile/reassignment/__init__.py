"""Reassignments: moves of replicas that users declare, run by the controller and shown here."""
