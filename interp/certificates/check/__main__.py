"""Run this folder with the standard library alone: python -I -S check proof.json.gz."""

import sys
from importlib import import_module
from pathlib import Path

if __package__:  # python -m interp.certificates.check
    package = __package__
else:  # python check: import from the parent folder, but only after the standard library
    folder = Path(__file__).resolve().parent
    sys.path = [place for place in sys.path if Path(place).resolve() != folder] + [str(folder.parent)]
    package = folder.name

if __name__ == "__main__":
    sys.exit(import_module(f"{package}.verdict").main())
