"""Set pieces: published results reproduced, and the built-in demonstration."""
