"""The replicas that this broker hosts: their logs' one writer, fetchers, maintenance."""
