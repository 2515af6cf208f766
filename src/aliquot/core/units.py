"""Units of size, in bytes."""

KIB = 2**10
MIB = 2**20
GIB = 2**30
MB = 10**6  # the unit in which links and disks are rated
