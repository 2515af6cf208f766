"""Triggers: rules that fire actions, and the alarms that fire triggers by the clock."""
