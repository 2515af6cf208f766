"""The storage fabric: datasets near the work. Origins, the cache of a node, views, the access log, and the agent."""
