"""Endpoints for everything but entities: activations, sessions, datasets, models, the operator, metrics, OpenAPI."""
