"""Sandboxes that are started before any call needs them."""
