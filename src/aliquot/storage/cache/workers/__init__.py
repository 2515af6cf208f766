"""The threads that perform transfers: `pool` runs them, `steps` is their work, `progress` detects origins that hang."""
