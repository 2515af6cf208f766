"""History: what happened to a call and why, from a replay of the journal."""
