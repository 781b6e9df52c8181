"""Decoders and encoders of fields, selected by extension."""
