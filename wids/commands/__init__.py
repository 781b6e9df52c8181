"""The command line's commands: each parses its options, calls the library, prints."""
