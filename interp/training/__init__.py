"""Training of many models at once, by several engines with one interface."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(__name__)
