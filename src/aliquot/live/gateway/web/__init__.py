"""Web actions: functions that anyone may call with plain HTTP, as their owner."""
