"""HTTP as the SDK speaks it: requests and replies as bytes, and connections that are kept and used again."""
