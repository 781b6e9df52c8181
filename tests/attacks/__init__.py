"""Attacks on the library by data and servers of strangers, in generated variants.

`python -m attacks --help`, run in the folder of the tests, says how to run them in volume.
"""
