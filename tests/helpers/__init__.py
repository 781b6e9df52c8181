"""Shared code of the tests: servers, worker processes, and makers of unusual files."""
