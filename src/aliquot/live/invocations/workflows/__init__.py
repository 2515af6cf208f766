"""The durable shell of workflows: executions in the store, their tasks, timers and callbacks, and their recovery."""
