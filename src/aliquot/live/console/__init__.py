"""The console: a web page about the platform, on a port of its own."""
