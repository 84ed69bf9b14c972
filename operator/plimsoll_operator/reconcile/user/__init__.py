"""What becomes of User objects."""
