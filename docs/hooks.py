"""What the site takes from the project itself, so that it is written once: README, names, notebooks, claims, gallery.

Used by mkdocs (see mkdocs.yml). Every public name must have a docstring, or the build ends with the list of those that
have none. Each notebook is a page, as it is shipped: the tests run them. With INTERP_DOCS_RUN=1 they are run here, too.
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
        **reference(),
        **claims(),
        **gallery(),
        **notebooks(),
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


def reference() -> dict[str, str]:
    """A page that lists the public names, and one for each group of them. Raises PluginError if one is undocumented."""
    import interp

    public = [*interp.__all__, *interp._RETURNED]
    bare = [name for name in public if not inspect.getdoc(getattr(interp, name))]
    if bare:
        raise PluginError(f"public names without a docstring: {', '.join(bare)}")
    groups = re.findall(r"^(\w[\w ]+)(?::.*)?\n((?:    .*\n)+)", inspect.getdoc(interp) or "", re.MULTILINE)
    rows, pages, listed = [], {}, set[str]()
    for title, names in [*groups, ("What they return", " ".join(interp._RETURNED))]:
        mine = [name for name in re.findall(r"\w+", names) if name in public and name not in listed]
        listed |= set(mine)
        page = f"reference/{title.lower().replace(' ', '_')}.md"
        pages[page] = f"# {title}\n" + "".join(f"\n::: interp.{name}\n" for name in mine)
        about = {name: (inspect.getdoc(getattr(interp, name)) or "").split(". ")[0].split("\n\n")[0] for name in mine}
        rows += [
            f"| [{text_of(name)}]({page}#interp.{name}) | {text_of(' '.join(about[name].split()))} |" for name in mine
        ]
    missing = [name for name in public if name not in listed]
    pages["reference/errors.md"] = "# Errors\n" + "".join(f"\n::: interp.{name}\n" for name in missing)
    head = "# Public names\n\nEverything that `import interp` offers; the rooms below it are documented in their files."
    return {"reference.md": f"{head}\n\n| name | about |\n|---|---|\n" + "\n".join(rows) + "\n", **pages}


def gallery() -> dict[str, str]:
    """A page that names the live reports of some models, and these: pages of their own, as `make gallery` writes."""
    import interp
    from interp.report.gallery import gallery as write
    from interp.report.render import slug

    models = GALLERY[:2] if os.environ.get("INTERP_DOCS_QUICK") else GALLERY
    with tempfile.TemporaryDirectory() as folder:
        write(folder, models, ("question", "accuracy", "live"))
        found = {f"gallery/{path.name}": path.read_text("utf-8") for path in Path(folder).glob("*.html")}
    lines = [f"| [{name}](gallery/{slug(name)}.html) | {text_of(interp.load(name).task.describe)} |" for name in models]
    head = (
        "# Gallery\n\nEach page has the model itself in it: change its input, switch parts off, set its attention. "
        "Nothing is sent anywhere. These pages hold the first screen only; "
        "`make gallery` writes whole reports on every model that has weights.\n\n"
        "| model | what it is asked |\n|---|---|\n"
    )
    foot = "\n\n[All of them on one page](gallery/index.html), with what was found.\n"
    return {"gallery.md": head + "\n".join(lines) + foot, **found}


def notebooks() -> dict[str, str]:
    """A page that lists the notebooks, and one for each, with what its cells put out; figures are shipped pictures."""
    import nbformat
    from nbclient import NotebookClient

    pages, rows = {}, []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        shipped = [picture(cell) for cell in notebook.cells]
        if os.environ.get("INTERP_DOCS_RUN"):
            where = {"metadata": {"path": str(ROOT)}}
            NotebookClient(notebook, timeout=3600, resources=where, extra_arguments=QUIET).execute()
        parts = []
        for cell, drawn in zip(notebook.cells, shipped):
            source = cell.source.strip()
            if cell.cell_type == "markdown":
                parts.append(LINK.sub(r"] (`\1`)", source))
            elif source:
                parts.append(f"```python\n{source}\n```")
                parts += [shown for output in cell.get("outputs", []) if (shown := as_text(output))]
                parts += drawn
        name = f"notebooks/{path.stem}.md"
        title, _, about = parts[0].removeprefix("# ").partition("\n")
        rows.append(f"| [{text_of(title)}]({name}) | {text_of(about.strip().split(chr(10))[0])} |")
        pages[name] = "\n\n".join(parts)
    head = "# Notebooks\n\nAs they are shipped; each runs from the first cell to the last.\n\n"
    head += "| notebook | about |\n|---|---|\n"
    return {"notebooks.md": head + "\n".join(rows) + "\n", **pages}


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


def claims() -> dict[str, str]:
    """The verdict of the ledger, and a page for each paper with its table."""
    sys.path.insert(0, str(ROOT / "analyses"))
    try:
        import claims as ledger
    finally:
        sys.path.remove(str(ROOT / "analyses"))
    found = ledger.read()
    table = ledger.table_of(found)
    parts, pages = ["# Claims of four papers", ledger.page(found).verdict], {}
    for paper, title in ledger.PAPERS.items():
        rows = table[table["paper"] == paper]
        parts.append(f"- [{text_of(title)}](claims/{paper}.md): {len(rows)} claims")
        columns = ["claim", "status", "published", "ours", "where"]
        lines = [[*columns, "command"], ["---"] * (len(columns) + 1)]
        lines += [[*(text_of(row[c]) for c in columns), f"`{row['command']}`"] for row in rows.to_dict("records")]
        pages[f"claims/{paper}.md"] = f"# {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
    open_ones = [f"- **{one['id']}**: {text_of(one['why'])}" for one in found if "why" in one]
    parts += ["## Not reproduced: what is open, what was tried, what would decide it", "\n".join(open_ones)]
    return {"claims.md": "\n\n".join(parts), **pages}


def text_of(text: str) -> str:
    """Text that stays one cell of a table and means no markup."""
    return re.sub(r"([|*_`\[\]])", r"\\\1", html.escape(str(text), quote=False))
