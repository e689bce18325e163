"""Models: how one is described, built, read from a file, and run; see README.md."""
