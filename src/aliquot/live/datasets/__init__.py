"""The server's side of the storage fabric: the registry of datasets, and the agent process that fetches their files."""
