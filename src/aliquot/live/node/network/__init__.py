"""The networks of sandboxes: a relay process takes their connections, and opens those that the operator allows."""
