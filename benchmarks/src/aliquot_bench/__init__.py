"""Benchmarks of Aliquot's measured claims, the demonstration, and a dataset origin for both and for tests."""
