"""Fetching of bytes from URLs of all schemes, with retries and resumption."""
