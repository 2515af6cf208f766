"""Sessions: a user's invocations that belong together, from `POST /api/v1/sessions` to their end."""
