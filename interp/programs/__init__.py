"""Programs: the language of what small transformers compute, a compiler to weights, and a decompiler from them."""
