"""The stored lists of what this package registers. `python tests/models/test_listing.py` writes them anew."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from interp.models import listing
from interp.models.model_files import SPEC_FILE, shipped_root
from interp.models.spec import ModelSpec
from interp.report.sections import all_sections
from interp.tasks import registered_tasks

FILE = Path(listing.__file__).parent / "listed.json"


def made() -> dict[str, Any]:
    """What the file must hold, from the registries: only what is interp's own."""
    specs = [ModelSpec.from_toml(file) for file in sorted(shipped_root().glob(f"*/*/{SPEC_FILE}"))]
    rows, kinds = listing.registered_rows(), registered_tasks()
    return {
        "tasks": [row for row in rows if kinds[row["name"]].__module__.startswith("interp.")],
        "exact": listing.exact_rows(),
        "sections": [
            {"section": one.name, "title": one.title}
            for one in all_sections()
            if one.make.__module__.startswith("interp.")
        ],
        "parameters": {spec.id: listing.size_of(spec) for spec in specs if spec.task.table_sha256 is None},
    }


def test_the_stored_lists_are_those_of_the_registries() -> None:
    assert json.loads(FILE.read_text("utf-8")) == made(), "write it anew: python tests/models/test_listing.py"


KEYS = {"models": "exact", "tasks": "tasks", "sections": "sections"}


def test_lists_import_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from interp import cli\n"
        "for command in sys.argv[1:]:\n"
        "    sys.argv = ['interp', command]\n"
        "    try: cli.main()\n"
        "    except SystemExit: pass\n"
        "    print('end of a list')\n"
        "print(*({'torch', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *KEYS], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    for kind, listed in zip(KEYS.values(), done.stdout.split("end of a list\n")[:-1], strict=True):
        names = {line.split()[0] for line in listed.splitlines()[1:]}
        assert names >= {one.get("name", one.get("section")) for one in listing._file()[kind]}


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n", "utf-8")
