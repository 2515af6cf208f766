"""The behaviour of applications over time: what their sandboxes do, by the second and by the minute."""
