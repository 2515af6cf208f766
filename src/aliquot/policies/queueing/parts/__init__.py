"""Parts that several queueing policies are built from: heaps of flows, clocks, estimates and placements."""
