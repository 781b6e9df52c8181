"""Adapters, which give a dataset the interface that other libraries expect: files."""
