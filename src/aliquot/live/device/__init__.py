"""Device drivers, which enforce and measure the slices of sandboxes."""
