"""Invariants that must hold after every step: one module per subject, named as in the protocol."""
