"""Invocations: accept calls, feed the scheduler, run them on the node and record the outcome."""
