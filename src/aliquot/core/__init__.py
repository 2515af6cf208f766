"""The pure core: events and time go in, commands come out. Nothing here reads a clock or does I/O."""
