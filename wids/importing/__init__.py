"""Samples out of what people have: one module per kind of source, and what they have in common."""
