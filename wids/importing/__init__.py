"""Import of other formats: one module per kind of source, and the rules they share."""
