"""Predict which files are opened next: predictors, their training and scoring on sessions, and model versions."""
