"""The objects that an administrator has applied, and edits of them. This package imports no
operator and no broker.
"""
