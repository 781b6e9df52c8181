"""Packs: the tar indexes of many shards, their entries in a spec, and their keys, in one file."""
