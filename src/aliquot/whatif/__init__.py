"""Simulate the calls of a live server under other policies, and compare with what was measured."""
