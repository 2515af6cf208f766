"""The gateway: the platform's HTTP interface, which is compatible with Apache OpenWhisk's REST API."""
