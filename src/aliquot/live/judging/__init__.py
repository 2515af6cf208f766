"""Whether large bodies are JSON, found out beside the event loop."""
