"""Training: one interface, several engines, many models at once."""
