"""What the site takes from the project itself, so that it is written once: README, names, notebooks, claims, gallery.

Used by mkdocs (see mkdocs.yml). Every public name must have a docstring, or the build ends with the list of those that
have none. The notebooks are run; with INTERP_DOCS_QUICK=1 they are shown as they are.
"""

from __future__ import annotations

import base64
import html
import inspect
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
GALLERY = [
    *("count01/paper", "languages/first", "count01/minimal", "histogram/dot-exact", "histogram/bos-all-counts"),
    *("languages/parity-learned", "memorization/bigram", "algorithmic/max-of-k", "algorithmic/modular-addition"),
    *("algorithmic/induction", "algorithmic/brackets"),
]
QUIET = ["--log-level=ERROR"]
"""Of a kernel, which else warns that it talks to this very process without encryption."""
ROWS = 8
"""Of a table in a notebook that are shown."""
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the project."""
    pages = {
        "index.md": readme(),
        "reference.md": reference(),
        "claims.md": claims(),
        **gallery(),
        "notebooks.md": notebooks(),  # last, as it takes longest
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_post_build(config: Any) -> None:
    """Leave out the theme's page for a wrong address: a server alone shows it, and its links begin at the root."""
    (Path(config["site_dir"]) / "404.html").unlink(missing_ok=True)


def readme() -> str:
    """The README; its links to these pages lead to them, others into the repository become plain names."""
    text = (ROOT / "README.md").read_text("utf-8")

    def link(found: re.Match[str]) -> str:
        return f"]({found[1][5:]})" if found[1].startswith("docs/") else f"] (`{found[1]}`)"

    return LINK.sub(link, text)


def reference() -> str:
    """One entry for each public name, in the order of the alphabet. Raises PluginError if one is undocumented."""
    import interp

    public = [*interp.__all__, *interp._RETURNED]
    bare = [name for name in public if not inspect.getdoc(getattr(interp, name))]
    if bare:
        raise PluginError(f"public names without a docstring: {', '.join(bare)}")
    head = (
        "# Public names\n\nEverything that `import interp` offers; the rooms below it are documented in their files.\n"
    )
    return head + "".join(f"\n::: interp.{name}\n" for name in public)


def gallery() -> dict[str, str]:
    """A page that names the live reports of some models, and these: pages of their own, as `make gallery` writes."""
    import interp
    from interp.report.gallery import gallery as write
    from interp.report.render import slug

    models = GALLERY[:2] if os.environ.get("INTERP_DOCS_QUICK") else GALLERY
    with tempfile.TemporaryDirectory() as folder:
        write(folder, models, ("question", "accuracy", "live"))
        found = {f"gallery/{path.name}": path.read_text("utf-8") for path in Path(folder).glob("*.html")}
    lines = [f"| [{name}](gallery/{slug(name)}.html) | {cell(interp.load(name).task.describe)} |" for name in models]
    head = (
        "# Gallery\n\nEach page has the model itself in it: change its input, switch parts off, set its attention. "
        "Nothing is sent anywhere. These pages hold the first screen only; "
        "`make gallery` writes whole reports on every model that has weights.\n\n"
        "| model | what it is asked |\n|---|---|\n"
    )
    foot = "\n\n[All of them on one page](gallery/index.html), with what was found.\n"
    return {"gallery.md": head + "\n".join(lines) + foot, **found}


def notebooks() -> str:
    """Every notebook with what its cells put out; figures are the pictures that it is shipped with."""
    import nbformat
    from nbclient import NotebookClient

    quick = bool(os.environ.get("INTERP_DOCS_QUICK"))
    parts = ["# Notebooks\n\n" + ("As they are shipped.\n" if quick else "Run when this page was made.\n")]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        shipped = [picture(cell) for cell in notebook.cells]
        if not quick:
            where = {"metadata": {"path": str(ROOT)}}
            NotebookClient(notebook, timeout=3600, resources=where, extra_arguments=QUIET).execute()
        for cell, drawn in zip(notebook.cells, shipped):
            source = cell.source.strip()
            if cell.cell_type == "markdown":
                parts.append(re.sub(r"^#", "##", LINK.sub(r"] (`\1`)", source), flags=re.MULTILINE))
            elif source:
                parts.append(f"```python\n{source}\n```")
                parts += [shown for output in cell.get("outputs", []) if (shown := as_text(output))]
                parts += drawn
    return "\n\n".join(parts)


def picture(cell: Any) -> list[str]:
    """The figures that a cell is shipped with."""
    found = [output.get("data", {}).get("image/svg+xml", "") for output in cell.get("outputs", [])]
    coded = [base64.b64encode(one.encode()).decode() for one in found if one]
    return [f'<img alt="Figure" src="data:image/svg+xml;base64,{one}">' for one in coded]


def as_text(output: Any) -> str:
    """An output as a table or as text; figures are shipped, and whole reports are left to the notebook itself."""
    data = output.get("data", {})
    if {"image/svg+xml", "application/vnd.plotly.v1+json"} & set(data):
        return ""
    text = output.get("text") or data.get("text/plain", "")
    rows = re.findall(r"<tr.*?</tr>", data.get("text/html", ""), re.DOTALL)
    if rows and 'class="dataframe"' in data["text/html"]:
        more = f"<p>The first {ROWS} of {len(rows) - 1} rows.</p>" if len(rows) > ROWS + 1 else ""
        return f"<table>{''.join(rows[: ROWS + 1]).replace(chr(10), '')}</table>{more}"
    lines = str(text).strip("\n").rstrip().splitlines()
    if not lines:
        return ""
    shown = [*lines[:25], *(["..."] if len(lines) > 25 else [])]
    return "```text\n" + "\n".join(line[:160] for line in shown) + "\n```"


def claims() -> str:
    """The ledger as one table a paper."""
    sys.path.insert(0, str(ROOT / "analyses"))
    try:
        import claims as ledger
    finally:
        sys.path.remove(str(ROOT / "analyses"))
    found = ledger.read()
    table = ledger.table_of(found)
    parts = ["# Claims of four papers", ledger.page(found).verdict]
    for paper, title in ledger.PAPERS.items():
        rows = table[table["paper"] == paper]
        parts.append(f"## {title}")
        columns = ["claim", "status", "published", "ours", "where"]
        lines = [[*columns, "command"], ["---"] * (len(columns) + 1)]
        lines += [[*(cell(row[c]) for c in columns), f"`{row['command']}`"] for row in rows.to_dict("records")]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    open_ones = [f"- **{one['id']}**: {cell(one['why'])}" for one in found if "why" in one]
    parts += ["## Not reproduced: what is open, what was tried, what would decide it", "\n".join(open_ones)]
    return "\n\n".join(parts)


def cell(text: str) -> str:
    """Text that stays one cell of a table and means no markup."""
    return re.sub(r"([|*_`\[\]])", r"\\\1", html.escape(str(text), quote=False))
