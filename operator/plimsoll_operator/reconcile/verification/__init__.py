"""Verifications: runs a Spark job for each, and shows its report."""
