"""Alarms: triggers that fire by the clock."""
