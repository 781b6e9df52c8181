"""Faces of a dataset for other engines: files for libraries that read files."""
