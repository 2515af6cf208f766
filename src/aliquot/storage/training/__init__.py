"""Training from the access log: its sessions as steps, and the training process beside the agent."""
