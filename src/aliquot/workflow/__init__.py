"""Workflows in the Amazon States Language: checked, compiled, and run as events in, commands out.

`language` checks a definition and compiles it, `query` has the query languages, and `interpreter` runs an execution.
`history` and `graph` are views of an execution and of a definition.
"""
