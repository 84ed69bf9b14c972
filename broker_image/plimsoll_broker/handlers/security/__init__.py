"""Logins, rights, and the APIs that change them."""
