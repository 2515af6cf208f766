"""Files that are brought before anyone opens them: who is expected to open which, and what is on its way."""
