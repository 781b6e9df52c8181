"""A local web page over a dataset: what `wids browse` serves."""
