"""The SDK: functions that run in this process or on the platform. `aliquot` has the names that users need."""
