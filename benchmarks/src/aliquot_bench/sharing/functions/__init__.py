"""The functions that the sharing benchmark deploys, written as users write them."""
