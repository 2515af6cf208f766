"""HTTP for all routes: requests, responses, refusals, authentication and the table of endpoints."""
