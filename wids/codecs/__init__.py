"""Decoders and encoders of fields, by extension."""
