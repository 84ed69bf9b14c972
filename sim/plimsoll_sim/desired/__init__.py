"""What an administrator has applied, and edits of it.  Knows no operator and no broker."""
