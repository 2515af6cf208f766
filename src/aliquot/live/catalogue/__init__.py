"""The catalogue: namespaces, their entities, how names resolve to actions and what each function needs."""
