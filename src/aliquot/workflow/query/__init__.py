"""Query languages of workflows: JSONPath with intrinsic functions, JSONata, and Python's expressions."""
