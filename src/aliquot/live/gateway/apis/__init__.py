"""The API gateway: paths and verbs of one's own choosing that lead to web actions."""
