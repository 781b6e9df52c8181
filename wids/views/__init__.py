"""Sequences of samples made of other sequences: selections, concatenations, joins, mappings."""
