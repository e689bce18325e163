"""The parts that task models are made of, the model itself, and its file."""
