"""The server's side of the storage fabric: which datasets there are, and the agent that brings their files."""
