"""Samples for the eye: what a field holds, small pictures of it, and pages for notebooks."""
