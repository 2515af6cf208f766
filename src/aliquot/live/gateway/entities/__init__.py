"""Endpoints for the entities of a namespace: actions, packages, triggers, rules and alarms."""
