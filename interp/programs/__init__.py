"""Programs: the language of what small transformers compute, a compiler to weights, and a decompiler from them."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(__name__)
