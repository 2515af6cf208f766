"""The pure core: events and time go in, commands come out; nothing here reads a clock or touches a socket."""
