"""The picture of the live report in the README, docs/live.png: `python docs/picture.py` (needs a Chromium).

The panel of the shipped Count01 model on an input that it gets wrong, with one of its heads switched off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import interp

WIDTH, HEIGHT = 1240, 1516
STATE = "#live=counts:120,121,60;off:0.3"  # as the panel's own links have it
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars",
        "--run-all-compositor-stages-before-draw",
    ),
]


def main() -> None:
    """Write the picture beside this file, or to the path that is given."""
    browser = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium found: install one, or name it in BROWSER_PATH")
    out = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).with_name("live.png")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        interp.live("count01/paper").save(page)
        window = [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=8000"]
        subprocess.run(
            [browser, *FLAGS, *window, f"--screenshot={out}", page.as_uri() + STATE], check=True, capture_output=True
        )
    print(f"wrote {out}, {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
