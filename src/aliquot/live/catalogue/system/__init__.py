"""The packages that come with the platform, published in the namespace `whisk.system`."""
