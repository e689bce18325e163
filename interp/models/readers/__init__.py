"""Readers of other libraries' model files, one module per format, imported automatically.

A reader module has a tuple READERS. `read` finds the reader for a file, a folder, a state dict or a module and converts
it to TransformerLens's config and tensors. Nothing is downloaded, and nothing in a file is executed.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from interp.errors import InterpError, first_few, one_of, quoted, short
from interp.models.readers.base import Conversion as Conversion
from interp.models.readers.base import Reader as Reader
from interp.models.readers.base import Source, check_biases
from interp.models.readers.plain_tensors import is_whole, read_lens
from interp.models.readers.sources import open_source as open_source


@cache
def readers() -> tuple[Reader, ...]:
    """Return all readers, in the order in which they are tried."""
    known: list[Reader] = []
    for module in pkgutil.iter_modules(__path__):
        known += getattr(importlib.import_module(f"{__name__}.{module.name}"), "READERS", ())
    return tuple(sorted(known, key=lambda reader: (reader.order, reader.name)))


def find_reader(source: Source) -> Reader:
    """Find the reader for a source. Raises InterpError with the tensors found and the known formats."""
    for reader in readers():
        if reader.recognizes(source):
            return reader
    kind = source.config.get("model_type")
    names = [short(name, 40) for name in source.tensors]
    what = f"model_type {quoted(kind)}" if kind else f"tensors such as {first_few(names, 2)}"
    raise InterpError(
        f"{source.where} has {what}, which no reader knows; known formats: "
        f"{'; '.join(reader.name for reader in readers())}; "
        "for others, name the tensors as TransformerLens does and use interp.check_conversion"
    )


def read(source: Any, given: Any = None) -> Conversion:
    """Read and convert the model in a file, folder, state dict, module or bridge.

    Args:
        source: a path, a mapping of tensors, a torch module, or a TransformerBridge.
        given: settings that the file lacks, by name (each reader lists those that it supports), or a whole
            TransformerLens config: a mapping with its sizes, or a config object.

    Raises:
        CheckpointError: the file is broken, or its config and weights disagree.
        InterpError: no reader knows the format, or a setting is missing.
    """
    opened = source if isinstance(source, Source) else open_source(source)
    if is_whole(given):
        reading = read_lens(opened, given)
    else:
        reader = find_reader(opened)
        for name in given or ():
            if name not in reader.settings:
                raise InterpError(f"this is read as {reader.name}: {one_of('setting', name, reader.settings)}")
        reading = reader.read(opened, given or {})
    if opened.original is None:  # a module has the biases that it has
        check_biases(opened)
    scored = opened.any_name("score.weight")
    skipped = opened.config.get("pad_token_id") if scored else None
    bare, module = _is_bare(opened, reading.tensors), reading.module or opened.original
    return replace(_one_dtype(reading), module=module, scored=scored, skipped=skipped, bare=bare)


def _is_bare(source: Source, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the embedding is taken as the output layer, of which the source has no word."""
    table, head = tensors["embed.W_E"].data_ptr(), tensors["unembed.W_U"].data_ptr()
    # Of a tied model, files hold the embedding alone.
    named = (source.config.get("architectures") or ()) if source.module is None else (type(source.module).__name__,)
    alone = [tensor.data_ptr() for tensor in source.tensors.values()].count(table) == 1
    return table == head and alone and not any(str(name).endswith(("LMHeadModel", "ForCausalLM")) for name in named)


def _one_dtype(reading: Conversion) -> Conversion:
    """Convert all weights to float64 if any is float64 (missing biases are zeros in float32), otherwise to float32."""
    kinds = {tensor.dtype for tensor in reading.tensors.values()}
    kind = reading.fields.get("dtype") or (torch.float64 if torch.float64 in kinds else torch.float32)
    tensors: dict[str, Tensor] = {
        name: (t.to(kind) if t.is_floating_point() else t).contiguous() for name, t in reading.tensors.items()
    }
    half = sorted(str(k).removeprefix("torch.") for k in kinds & {torch.float16, torch.bfloat16} - {kind})
    facts = (f"Weights saved in {', '.join(half)} are converted to float32.",) if half else ()
    fields = dict(reading.fields)
    if reading.blocks is None:
        fields = {"d_vocab_out": tensors["unembed.W_U"].shape[1], **fields, "dtype": kind}
    return replace(reading, tensors=tensors, fields=fields, facts=(*reading.facts, *facts))
