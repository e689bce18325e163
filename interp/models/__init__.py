"""Models: how one is described, built, read from a file, and run; see README.md."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(__name__)
