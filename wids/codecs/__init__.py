"""Decoders and encoders: the bytes of a field to a value and back, by extension."""
