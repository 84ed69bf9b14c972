"""Handlers of logins, of the APIs that change rights, and the checks of rights."""
