"""Training engines in torch, one class with the interface of engine.py per file.

A spec is trained by the registered engine of lowest `order` that supports it. Engines of one family are in its folder,
and so is the compiled loop of histograms.
"""
