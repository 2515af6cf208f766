"""Datasets in the simulator: files at an origin, the link to it, the node's cache, and who predicts what is opened."""
