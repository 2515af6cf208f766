"""The index of the newest calls: a pure reader of the journal's steps and of the records of calls."""
