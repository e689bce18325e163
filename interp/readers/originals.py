"""The original library's forward pass, to check converted models. The library is imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from interp.errors import InterpError
from interp.readers.base import CLASSIFIERS, Source

HEADS = (*CLASSIFIERS, "lm_head", "embed_out")


def hugging_face(source: Source) -> Callable[[Tensor], Tensor] | None:
    """Return a function from token ids (rows, length) to the transformers library's logits (rows, length, n_out).

    Returns None if transformers is not installed. The library's class is chosen by model_type only, and loaded with the
    weights that were read. auto_map is ignored, so nothing in the folder is executed.
    """
    if find_spec("transformers") is None:
        return None

    def logits(tokens: Tensor) -> Tensor:
        base, head, bias = _body(source)
        with torch.no_grad():
            return base(tokens).last_hidden_state @ head.T + bias

    return logits


def _body(source: Source) -> tuple[torch.nn.Module, Tensor, Tensor]:
    import transformers

    kept = {name: value for name, value in source.config.items() if name not in ("auto_map", "quantization_config")}
    tensors = {name: t.float() if t.is_floating_point() else t for name, t in source.tensors.items()}
    try:
        config = transformers.AutoConfig.for_model(**kept)
        base = transformers.AutoModel.from_config(config, attn_implementation="eager").eval().float()
    except Exception as error:  # the library may raise anything
        raise InterpError(f"transformers cannot build {source.where}: {str(error).strip()[:200]}") from None
    own = base.state_dict()
    prefix = getattr(base, "base_model_prefix", "") + "."
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    base.load_state_dict({name: found.get(name, value) for name, value in own.items()})
    for name in HEADS:
        if (matrix := found.get(f"{name}.weight")) is not None:
            return base, matrix, found.get(f"{name}.bias", torch.zeros(len(matrix)))
    matrix = base.get_input_embeddings().weight.detach()
    return base, matrix, torch.zeros(len(matrix))
