"""Binary units of size, in bytes, for code that may not import `aliquot.core`."""

KIB = 2**10
MIB = 2**20
GIB = 2**30
