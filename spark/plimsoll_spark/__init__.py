"""Spark jobs that drive a workload and verify what came of it."""
