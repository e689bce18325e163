"""How many files of interp/ does a call run? A reader who follows the call has to open these.

    python analyses/benchmarks/files_run.py           # the three calls
    python analyses/benchmarks/files_run.py --list    # also which files, and how many functions of each

A file counts if a function of it runs that no import has called: bodies of modules and classes do not count, nor what
they call (registering a task, say). Each call has a process of its own, after `import interp`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

CALLS = (
    'interp.load("count01/paper")',
    'interp.certify("algorithmic/addition")',
    'interp.analyze("count01/paper")',
)


def functions_run(call: str) -> dict[str, set[str]]:
    """For each file of interp/ that the call runs, the names of its functions that run."""
    import interp

    root = Path(interp.__file__).parent
    found: dict[str, set[str]] = defaultdict(set)
    importing = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if event in ("call", "return") and not code.co_flags & CO_OPTIMIZED:  # the body of a module or class
            importing += 1 if event == "call" else -1
        elif event == "call" and not importing and code.co_filename.startswith(str(root)):
            found[str(Path(code.co_filename).relative_to(root))].add(code.co_qualname)

    run = eval(f"lambda: {call}", {"interp": interp})
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the files and their numbers of functions")
    parser.add_argument("--call", help="one call, in this process")
    given = parser.parse_args()
    if given.call is None:
        for call in CALLS:
            subprocess.run([sys.executable, __file__, "--call", call, *["--list"] * given.list], check=True)
        return
    found = functions_run(given.call)
    rooms = {file.rpartition("/")[0] for file in found}
    print(f"{given.call}: {len(found)} files, {len(rooms)} rooms, {sum(map(len, found.values()))} functions")
    for file in sorted(found) if given.list else ():
        print(f"  {file}  {len(found[file])}")


if __name__ == "__main__":
    main()
