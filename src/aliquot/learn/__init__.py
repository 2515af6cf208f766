"""What is learned from records: which files come next. Models, their training, and the registry of their versions."""
