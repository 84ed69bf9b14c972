"""Reconciles the custom resources: turns their specs into requests to the controller and into
Kubernetes objects, and the results into conditions.
"""
