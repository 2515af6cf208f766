"""The node agent: a process that has the sandboxes of one machine and obeys the head."""
