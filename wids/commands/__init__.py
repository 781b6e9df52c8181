"""Commands of the command line: each parses its options, calls the library and prints."""
