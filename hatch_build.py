"""What a wheel carries besides the code: trained models from models/, each file below 2 MB, as interp's data.

In the repository they lie in one place, models/; a wheel has them as interp/_models, where interp.models.model_files
looks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIMIT = 2_000_000


class Models(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a clone has its models/ beside the code
            return
        root = Path(self.root)
        files = [*root.glob("models/*/*/model.toml"), *root.glob("models/*/*/*.safetensors")]
        files += root.glob("models/certificates.csv")  # what `interp models` says of each
        for file in files:
            if file.stat().st_size < LIMIT:
                build_data["force_include"][str(file)] = f"interp/_models/{file.relative_to(root / 'models')}"
