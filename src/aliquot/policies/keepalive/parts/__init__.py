"""Parts that keep-alive policies are made of."""
