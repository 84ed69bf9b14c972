"""The replicas that this broker hosts: the one writer of their logs, their fetchers and their
maintenance."""
