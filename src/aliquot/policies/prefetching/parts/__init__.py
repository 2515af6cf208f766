"""Parts that several prefetching policies are built from."""
