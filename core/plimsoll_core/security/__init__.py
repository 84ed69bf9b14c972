"""Users, credentials, ACLs and logins: committed state, and the rules that depend on nothing
else."""
