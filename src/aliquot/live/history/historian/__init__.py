"""The historian: a process of its own that indexes the journal and answers questions about the past."""
