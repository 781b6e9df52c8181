"""The ground floor: files, locks, threads, processes, hashing and text, used by all packages."""
