"""The simulated storage fabric: files at an origin, the link to it, the node's cache, and file predictors."""
