"""Training engines in torch, one class with the interface of engine.py per file.

A spec is trained by the registered engine of lowest `order` that supports it. Engines of one family are in its folder,
and so are the compiled loops, which share interp/training/compiled/.
"""
