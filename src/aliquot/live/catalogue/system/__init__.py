"""What comes with the platform: the published packages of the namespace `whisk.system`."""
