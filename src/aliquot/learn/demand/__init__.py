"""Forecasts of demand: how many calls, how many at once, how much compute. No clock, no I/O."""
