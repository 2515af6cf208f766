"""Functions of different kinds, which the benchmark deploys from these files."""
