"""Is this host, or this live server, fit for a repository? Facts are read, then judged by pure functions."""
