"""The demonstration behind `aliquot demo`: load on a real server, and the tables and pictures of what it did."""
