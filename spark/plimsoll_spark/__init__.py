"""Spark jobs that write a workload and verify the resulting log."""
