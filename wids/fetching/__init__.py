"""Bytes behind URLs: all schemes, retries, resumption; no knowledge of tars or caches."""
