"""What people import: functions that run here or on the platform."""
