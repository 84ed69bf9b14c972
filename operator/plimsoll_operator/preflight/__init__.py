"""`plimsoll preflight`: whether a Kubernetes can run Plimsoll.

`gather` reads, the checks decide over what was read, `report` prints.  Called by `cli`; the
operator's process imports none of it.
"""
