"""Spans of calls that have ended: which calls have some, what they are, and how they are sent to a collector."""
