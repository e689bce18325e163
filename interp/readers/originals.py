"""The original library's model, to check converted models. The library is imported on first use."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from torch import Tensor, nn

from interp.errors import InterpError
from interp.readers.base import CLASSIFIERS, Source

HEADS = (*CLASSIFIERS, "lm_head", "embed_out")


def hugging_face(source: Source) -> Callable[[], nn.Module] | None:
    """Return a function that builds the transformers library's model, or None if that library is not installed.

    The model maps token ids (rows, length) to logits (rows, length, n_out). The library's class is chosen by model_type
    only, and loaded with the weights that were read. auto_map is ignored, so nothing in the folder is executed.
    """
    return None if find_spec("transformers") is None else partial(_Original, source)


class _Original(nn.Module):
    head: Tensor
    bias: Tensor

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.base, head, bias = _body(source)
        self.register_buffer("head", head)
        self.register_buffer("bias", bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.base(tokens).last_hidden_state @ self.head.T + self.bias


def _body(source: Source) -> tuple[nn.Module, Tensor, Tensor]:
    """Build the library's model without its head, in float64, which loses nothing; return it with the head."""
    import transformers

    kept = {name: value for name, value in source.config.items() if name not in ("auto_map", "quantization_config")}
    tensors = {name: t.double() if t.is_floating_point() else t for name, t in source.tensors.items()}
    try:
        config = transformers.AutoConfig.for_model(**kept)
        base = transformers.AutoModel.from_config(config, attn_implementation="eager").eval().double()
    except Exception as error:  # the library may raise anything
        raise InterpError(f"transformers cannot build {source.where}: {str(error).strip()[:200]}") from None
    own = base.state_dict()
    prefix = getattr(base, "base_model_prefix", "") + "."
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    base.load_state_dict({name: found.get(name, value) for name, value in own.items()})
    for name in HEADS:
        if (matrix := found.get(f"{name}.weight")) is not None:
            return base, matrix, found.get(f"{name}.bias", matrix.new_zeros(len(matrix)))
    matrix = base.get_input_embeddings().weight.detach()
    return base, matrix, matrix.new_zeros(len(matrix))
