"""The files of the console's page, served as they are by `live/console/`."""
