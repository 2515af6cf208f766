"""What must survive: documents, activations, the queue of accepted invocations, the journal."""
