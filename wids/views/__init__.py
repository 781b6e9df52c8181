"""Sequences of samples made of others: chosen, placed one after the other, joined, mapped."""
