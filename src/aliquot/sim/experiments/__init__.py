"""Experiments: reproductions of published results, and the built-in workload of `aliquot study`."""
