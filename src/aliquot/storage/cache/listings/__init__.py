"""Listings of datasets: one listing as a tree, and those that the node remembers."""
