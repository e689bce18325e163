"""Families: each folder holds one paper or group whole, and extends the rest of the package as a user's plug-in does.

A family registers its tasks, constructions, methods of certification, training engines and sections; the packages of
the registries import these files (interp.tasks.registry). No other package imports a family, and no family another.
"""

from interp.support.exports import exports

__getattr__, _ = exports(__name__)
