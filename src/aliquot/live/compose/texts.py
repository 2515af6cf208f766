"""What is said when a composition cannot go on: OpenWhisk's words, which its clients know."""

SEQUENCE_TOO_LONG = "Too many actions in the sequence."
SEQUENCE_COMPONENT_MISSING = "Sequence component does not exist."
COMPOSITION_TOO_LONG = "Too many actions in the composition."
NOT_A_NAME = "Failed to parse action name from json value {} during composition."
NOT_FOUND = "Failed to resolve action with name '{}' during composition."
NOT_ENTITLED = "Failed entitlement check for action with name '{}' during composition."
CANCELLED = "cancelled"
