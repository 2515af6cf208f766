"""The demonstration behind `aliquot demo`: load on a real server, and tables and pictures of the results."""
