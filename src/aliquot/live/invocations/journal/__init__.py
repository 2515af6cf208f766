"""The journal of scheduler steps: write it, take snapshots and replay it."""
