"""The function that the prefetch benchmark deploys."""
