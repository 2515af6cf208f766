"""The storage fabric: origins, the node's cache, views of datasets, the access log, and the storage agent."""
