"""Transfers as a pure state machine: events and the time go in, decisions come out.

Nothing here starts a thread, reads a clock or touches a file. The cache's lock is held during every call. Workers
report events to `TransferMachine` and ask it for their next step. The caller drains its decisions and performs them.
An entry's file and a transfer's origin are passed through unread.

From the bottom up: `entry` (one file in the cache), `transfer` (one file being fetched), `space` (bytes and eviction),
`table` (the running transfers), `reservations`, `progress`, `failures`, `schedule`, and `machine`, which takes all
events.
"""
