"""The commands `aliquot bench` and `aliquot demo`, which `aliquot` finds through entry points."""
