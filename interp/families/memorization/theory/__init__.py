"""Theory: maths without models."""
