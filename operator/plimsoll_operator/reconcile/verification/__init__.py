"""Verifications: a Spark job each."""
