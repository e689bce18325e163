"""Training engines in torch, one class with the interface of base.py per file.

A spec is trained by the first engine in `ENGINES` (interp/training/train.py) that supports it. They are ordered by
speed; a new engine needs one line there. The compiled engines are in interp/training/compiled/.
"""
