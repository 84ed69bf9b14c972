"""The APIs of transactions."""
