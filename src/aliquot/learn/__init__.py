"""Which files come next: predictors learned from sessions of accesses, their trial on held-back ones, and versions."""
