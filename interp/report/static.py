"""Figures as SVG or PNG files, through kaleido and a browser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.errors import InterpError, check_one_of
from interp.report.render import height_of, size_hints, slug

if TYPE_CHECKING:
    import plotly.graph_objects as go

IMAGE_FORMATS = ("svg", "png")
WIDTH = 800


def save_figures(figures: Mapping[str, go.Figure], folder: Path, format: str) -> list[Path]:
    """Write each figure to folder/<key>.<format>, in the light theme, with one start of the browser.

    Raises:
        InterpError: the format is unknown, two keys give the same file name, kaleido or a browser is missing, or the
            folder cannot be written to.
    """
    check_one_of("image format", format, IMAGE_FORMATS)
    paths = [folder / f"{slug(key)}.{format}" for key in figures]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        keys = [key for key, path in zip(figures, paths) if path == twice]
        raise InterpError(f"the figures {' and '.join(map(repr, keys))} would both be saved as {twice}")
    try:
        import kaleido
    except ImportError:
        raise InterpError("saving figures needs kaleido; install it with: pip install kaleido") from None
    from kaleido.errors import ChromeNotFoundError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InterpError(f"cannot save figures to {folder}: {error.strerror or error}") from error
    jobs = [_job(figure, path) for figure, path in zip(figures.values(), paths)]
    try:
        # Without mathjax=False kaleido would fetch it from the network.
        failures = kaleido.write_fig_from_object_sync(jobs, kopts={"mathjax": False})
    except ChromeNotFoundError:
        raise InterpError(
            "saving figures needs Chrome or Chromium, and none was found; install one, or name it in BROWSER_PATH"
        ) from None
    except (OSError, RuntimeError) as error:
        raise InterpError(f"cannot save figures to {folder}: the browser failed ({error})") from error
    if failures:
        raise InterpError(f"cannot save {len(failures)} of {len(paths)} figures to {folder}: {failures[0]}")
    return paths


def _job(figure: go.Figure, path: Path) -> dict[str, Any]:
    hints = size_hints(figure)
    options = {
        "format": path.suffix.removeprefix("."),
        "width": hints.get("max_width", max(WIDTH, hints.get("min_width", 0))),
        "height": height_of(figure),
        "scale": 2 if path.suffix == ".png" else 1,
    }
    return {"fig": figure.to_dict(), "path": path, "opts": options}
