"""Training engines in torch, one file each: a class with a `name`, a `refusal` and the interface of base.py.

What trains is chosen by what a spec allows, in the order of `ENGINES` in interp/training/train.py: an engine that is
added here gets one line there, where its speed belongs. The compiled engines are in interp/training/compiled/.
"""
