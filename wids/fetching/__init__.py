"""From a URL to bytes: every scheme, retries, resumption; knows nothing of tars or caches."""
