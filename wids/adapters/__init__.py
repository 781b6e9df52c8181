"""Interfaces that other libraries expect of a dataset: its fields as files."""
