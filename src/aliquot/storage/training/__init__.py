"""Learning from the access log: its sessions as steps, and the process that trains beside the agent."""
