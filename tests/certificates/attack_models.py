"""Random models, and evidence that claims something of them."""

import random
from typing import Any

import torch
from bare_checker import check

from interp.certificates.evidence import weights_sha256
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import ModelSpec


def drawn(spec: ModelSpec, rng: random.Random, size: float) -> TaskModel:
    """A model with random float32 weights, in float64; sometimes with zeros, ties and extreme scores."""
    model = TaskModel(spec, seed=rng.randrange(10**6), dtype="float64")
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    extreme = rng.choice([0.0, 1.0, 1.0, 4.0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
            if "W_Q" in name:
                values = values * extreme
            if rng.random() < 0.1:
                values = values.round()
            parameter.copy_(values.float().double())
    return model


def in_float32(model: TaskModel) -> TaskModel:
    return TaskModel(model.spec, tensors={n: p.detach().float() for n, p in model.named_parameters()}, dtype="float32")


def evidence_of(model: TaskModel, kind: str, domain: Any, parts: Any, margin: float, form: str) -> dict[str, Any]:
    weights = {name: {"shape": list(p.shape), "values": [x.hex() for x in p.detach().double().flatten().tolist()]}
               for name, p in model.named_parameters()}  # fmt: skip
    claim = {"kind": kind, "domain": domain, "format": form, "margin": float(margin).hex(), "sentence": "?"}
    return {"evidence": check.SCHEMA, "model": model.spec.id, "spec": model.spec.to_dict(), "weights": weights,
            "weights_sha256": weights_sha256(model), "claim": claim, "parts": parts}  # fmt: skip
