"""The forecaster: a process of its own that tells the scheduler which calls to expect."""
