"""What runs inside zygotes and sandboxes. Standard library only: it must start in any environment."""
