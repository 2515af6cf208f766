"""A demonstration of the platform: three tenants with their own manners on one server, measured from outside."""
