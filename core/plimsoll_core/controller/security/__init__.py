"""Decisions about users, credentials and rights."""
