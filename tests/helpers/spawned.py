"""Functions for spawned processes, which can import this module and no test modules."""
