"""Forecasts in virtual time: the forecaster of the live platform, or one that knows the workload."""
