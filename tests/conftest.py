"""Profiles of the property tests: `make test` keeps them short, `make test-long` does not."""

from hypothesis import HealthCheck, settings

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=slow, derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=slow)
settings.load_profile("default")
