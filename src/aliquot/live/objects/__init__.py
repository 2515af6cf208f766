"""Objects and blobs of namespaces: files in the data folder, and names in the store."""
