"""The storage agent: a process beside the server that holds the cache, serves the views and runs the model."""
