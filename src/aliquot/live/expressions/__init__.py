"""Expressions that may take long, and definitions, are evaluated and checked in processes beside the event loop."""
