"""Gateway processes: they read HTTP for the scheduler's process, and exchange frames with it over Unix sockets."""
