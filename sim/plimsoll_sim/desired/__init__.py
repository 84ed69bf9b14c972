"""An administrator's applied objects, and edits of them. Imports no operator and no broker."""
