"""Alarms fire triggers at set times."""
