"""Training of many models at once, by several engines with one interface."""
