"""Many machines as one platform: a head, and node agents that run its sandboxes."""
