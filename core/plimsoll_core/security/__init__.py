"""Users, credentials, ACLs and logins: committed state, and the rules that need nothing else."""
