"""Files, progress, resources, words and figures: nothing here knows a model; see README.md."""
