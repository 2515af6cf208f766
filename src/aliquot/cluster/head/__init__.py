"""The head's side: nodes that join, the commands to them, and what they report."""
