"""Invocations over HTTP: the path of a request from its bytes to a call, and back."""
