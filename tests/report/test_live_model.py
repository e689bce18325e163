"""The page's model is torch's: every model of the zoo, with and without interventions, activation by activation."""

import subprocess
from typing import Any

import numpy as np
import pytest
import torch
from drawn_weights import draw, hooked
from live_model import deviation, javascript, needs_node, numbers, run
from standins import Ends, standin

import interp
from interp.errors import CheckpointError, InterpError, UnsupportedError
from interp.families.count01 import Count01
from interp.models.lens import HookedTransformer
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.models.subject import Subject
from interp.report.live import FILES, script
from interp.report.sections.live_payload import Inputs, payload
from interp.tasks import Batch, make_task, registered_tasks
from interp.tasks.rules import evaluate

TOLERANCE = 1e-4
ROWS = 9
LONGEST = 40


@pytest.fixture(autouse=True)
def _node() -> None:
    needs_node()


def models() -> list[str]:
    """Those that can be had without arguments."""
    return [str(name) for name in interp.list_models()["name"]]


def open_model(name: str) -> interp.TaskModel:
    try:
        return interp.load(name)
    except CheckpointError as error:
        if "no such file" not in str(error):
            raise
        pytest.skip(f"not shipped: {error}")
    except InterpError as error:
        if "no default" not in str(error):
            raise
        return table_model(name)


def table_model(name: str) -> interp.TaskModel:
    """Exact models of a table that has to be given, on a small one."""
    task = make_task(TaskRef(name="kgram", parameters=(("N", 5),)))
    given: dict[str, dict[str, Any]] = {
        "memorization/capacity": {"d_model": 4, "n_heads": 12},
        "memorization/corollary2": {"length": 4, "rank": 3},
        "memorization/theorem1": {"d_model": 4},
    }
    return interp.build(name, table=task.table, **given[name])  # type: ignore[attr-defined]


def hooks_of(subject: Subject, off: list[str], replace: dict[str, torch.Tensor]) -> list[tuple[str, Any]]:
    """The interventions as TransformerLens hooks."""
    found: list[tuple[str, Any]] = []
    for part in off:
        layer, head = part.split(".")
        if head == "mlp":
            found.append((f"blocks.{layer}.hook_mlp_out", lambda out, hook: torch.zeros_like(out)))
        else:

            def silence(z: torch.Tensor, hook: Any, head: int = int(head)) -> torch.Tensor:
                z = z.clone()
                z[:, :, head] = 0
                return z

            found.append((f"blocks.{layer}.attn.hook_z", silence))
    return found + [(name, lambda old, hook, new=new: new.to(old)[None]) for name, new in replace.items()]


def torch_run(
    subject: Subject, tokens: torch.Tensor, hooks: list[tuple[str, Any]]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Logits at all positions, and the activations that such a run passes."""
    with torch.no_grad(), subject.model.hooks(fwd_hooks=hooks):
        logits, cache = subject.model.run_with_cache(subject.inputs(tokens[None]))
    return subject.columns(logits)[0].double().numpy(), dict(cache.items())


def check_model(subject: Subject, seed: int = 0) -> float:
    """Largest deviation of logits and activations over untouched and edited runs."""
    data, inputs, generator = payload(subject), Inputs(subject), torch.Generator().manual_seed(seed)
    # Many of the sampled rows are long: fewer of these are enough.
    rows = [
        batch.tokens[0]
        for number, batch in enumerate(inputs.batches[:ROWS])
        if number < 5 or len(batch.tokens[0]) <= LONGEST
    ]
    layers, jobs, wanted = data["arch"]["layers"], [], []
    for number, row in enumerate(rows):
        last = len(layers) - 1
        off = [f"{last}.{number % layers[last]['n_heads']}", *(["0.mlp"] if layers[0]["mlp"] else [])]
        n, heads = len(row), layers[0]["n_heads"]
        pattern = torch.rand(heads, n, n, generator=generator, dtype=torch.float64).tril()
        replaced = {"blocks.0.attn.hook_pattern": pattern / pattern.sum(-1, keepdim=True)}
        for edit in ({}, {"off": off}, {"replace": replaced}):
            if "replace" in edit and n > LONGEST:  # a pattern is many numbers to hand over
                continue
            everything = number < 3 and n <= 40
            whole = {name: value.flatten().tolist() for name, value in edit.get("replace", {}).items()}
            jobs.append(
                {"tokens": row.tolist(), "result": everything, "off": edit.get("off"), "replace": whole or None}
            )
            hooks = hooks_of(subject, edit.get("off", []), edit.get("replace", {}))
            wanted.append(torch_run(subject, row, hooks))
    assert len(jobs) >= 10
    worst = 0.0
    for job, found, (logits, cache) in zip(jobs, run([{"payload": data, "runs": jobs}])[0], wanted):
        worst = max(worst, deviation(numbers(found["logits"], logits.shape), logits))
        if found["counted"]:
            at = [numbers(one, logits.shape[1:]) for one in found["counted"]]
            worst = max(worst, deviation(np.stack(at), logits[found["places"]]))
        if job["result"] and not subject.token_ids:
            worst = max(worst, check_cache(found["cache"], cache))
    return worst


def check_cache(found: dict[str, Any], wanted: dict[str, torch.Tensor]) -> float:
    """Every activation of torch's is there under its name and with its shape, without the row axis."""
    apart = ("hook_in", "hook_out", "_norm.hook_scale", "_norm.hook_normalized")  # the last two mix rows with heads
    names = {name for name in wanted if not name.endswith(apart)}
    assert names <= set(found)
    assert set(found) - names <= {"unembed.hook_in", "unembed.hook_out"} | {
        name for name in found if name.endswith("hook_result")
    }
    worst = 0.0
    for name in names:
        value = wanted[name] if name.endswith("attn.hook_pos") else wanted[name][0]
        array = value.double().numpy()
        # What is rounding of sums that cancel has no spread of its own.
        if array.size and np.abs(array[np.isfinite(array)]).max(initial=0.0) > 1e-9:
            worst = max(worst, deviation(numbers(found[name]["data"], found[name]["shape"]), array))
    return worst


@pytest.mark.parametrize("name", models())
@pytest.mark.thinned(16)
def test_the_page_gives_torchs_numbers(name: str) -> None:
    subject = Subject.of(open_model(name))
    assert check_model(subject) < TOLERANCE


PLAIN = Layer(n_heads=2, d_head=4)
GELU = Layer(
    n_heads=2, d_head=4, mlp=MLP(d_mlp=7, activation="gelu"), norm="pre", bias=Bias(q=True, k=True, v=True, o=True)
)
MODERN = Layer(
    n_heads=4, d_head=4, key_value_heads=2, query_key_norm=True, norm="pre", norm_kind="rms",
    mlp=MLP(d_mlp=7, activation="silu", gated=True, bias=False), bias=Bias(q=True, k=True, v=True),
)  # fmt: skip
SPECS = {
    "sinusoids, gelu, pre-norm, final norm": {
        "positions": "sinusoidal", "layers": (GELU, GELU), "final_norm": "layer_norm",
    },
    "post-norm, log-length": {
        "layers": (GELU.model_copy(update={"norm": "post", "log_length": "current"}),) * 2,
        "direction": "bidirectional",
    },
    "only one block with an MLP": {"layers": (PLAIN, PLAIN.model_copy(update={"mlp": MLP(d_mlp=3)}))},
    "counts with pre-norm and biases": {
        "layers": (PLAIN.model_copy(update={"norm": "pre", "bias": Bias(q=True, k=True, v=True, o=True)}),)
    },
    "RMS norms, rotary positions, shared keys, a gate": {
        "positions": "rotary", "positions_enter": "attention", "layers": (MODERN,) * 2, "final_norm": "rms_norm",
    },
    "positions in attention alone": {
        "positions": "learned", "positions_enter": "attention", "max_length": 64, "layers": (PLAIN,),
    },
    "half precision": {"layers": (PLAIN, PLAIN), "dtype": "bfloat16"},
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SPECS)
def test_architectures_that_no_shipped_model_has(name: str) -> None:
    fields = {
        "direction": "causal",
        "readout_at": "[CLS]" if SPECS[name].get("direction") == "bidirectional" else "last",
    }
    task = TaskRef(name="palindrome", parameters=(("length", 12), ("shortest", 2)))
    given = {"dtype": "float64", **fields, **SPECS[name]}
    spec = ModelSpec(task=task, d_model=8, readout="scalar", decision="sigmoid", **given)
    model = interp.TaskModel(spec, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)  # far from linear
    if spec.dtype == "bfloat16":
        wide = interp.TaskModel(spec, seed=1, dtype="float64")
        wide.load_state_dict({key: value.double() for key, value in model.state_dict().items()})
        found = payload(Subject.of(model))
        assert found["weights"]["embed.W_E"]["dtype"] == "bfloat16"
        rows = [batch.tokens[0] for batch in Inputs(Subject.of(model)).batches[:10]]
        answers = run([{"payload": found, "runs": [{"tokens": row.tolist()} for row in rows]}])[0]
        for row, answer in zip(rows, answers):
            logits = torch_run(Subject.of(wide), row, [])[0]
            assert deviation(numbers(answer["logits"], logits.shape), logits) < TOLERANCE
    else:
        assert check_model(Subject.of(model)) < TOLERANCE


ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 100}


def foreign(**changes: Any) -> HookedTransformer:
    fields: dict[str, Any] = {"n_layers": 2, "d_model": 12, "n_ctx": 420, "d_head": 4, "n_heads": 3, "d_vocab": 11,
                              "d_mlp": 9, "act_fn": "gelu_new", "normalization_type": "LN"}  # fmt: skip
    model = hooked(**{**fields, **changes})
    draw(model, 0, 0.7, torch.float32)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalization_type": "LNPre", "act_fn": "silu"},
        {"normalization_type": None, "attn_only": True, "d_mlp": None, "act_fn": None},
        {"attention_dir": "bidirectional", "act_fn": "relu", "use_attn_scale": False},
        {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu", **ROTARY, "n_key_value_heads": 3},
        {"normalization_type": "RMSPre", "n_heads": 4, "n_key_value_heads": 2, "use_qk_norm": True, **ROTARY},
        {**ROTARY, "rotary_dim": 2, "rotary_adjacent_pairs": True, "parallel_attn_mlp": True},
        {"positional_embedding_type": "alibi", "final_rms": False},
    ],
    ids=["LN", "LNPre", "attention only", "bidirectional", "Llama", "Qwen 3", "GPT-NeoX", "ALiBi"],
)
def test_somebody_elses_model_with_its_own_ids(changes: dict[str, Any]) -> None:
    tokens = {word: 10 - number for number, word in enumerate(Count01().vocabulary)}
    assert check_model(Subject.external(foreign(**changes), "count01", tokens)) < TOLERANCE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"positional_embedding_type": "shortformer"}, "shortformer"), ({"act_fn": "solu_ln"}, "solu_ln"),
        ({"final_rms": True}, "final_rms"), ({"use_attention_sinks": True}, "use_attention_sinks"),
        ({"n_ctx": 40_000}, "1.9 MB"),
    ],
)  # fmt: skip
def test_what_the_page_cannot_run_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    if "n_ctx" in changes:
        changes = {"n_ctx": 450, "d_model": 512, "d_head": 64, "n_heads": 8, "d_mlp": 1024}
        reason = "MB of weights"
    tokens = {word: number for number, word in enumerate(Count01().vocabulary)}
    with pytest.raises(UnsupportedError, match=reason):
        payload(Subject.external(foreign(**changes), "count01", tokens))


class FirstLetter(Ends):
    """The same task, said otherwise: read at the first position."""

    name = "live_first_letter"
    readout = "first"


def test_answers_at_the_first_position() -> None:
    subject = standin("ends")
    found = Subject.external(subject.model, FirstLetter())
    assert check_model(found) < TOLERANCE
    assert payload(found)["tests"]["places"][0] == [0]


def test_what_is_right_is_known_where_the_task_says_it() -> None:
    subject = Subject.of(interp.load("count01/paper"))
    batch = Count01().sentences(torch.tensor([[3, 4, 1], [4, 4, 0], [0, 0, 9]]))
    rows = [row[: row.tolist().index(4) + 1].tolist() for row in batch.tokens]
    found = run([{"payload": payload(subject), "runs": [{"tokens": row} for row in rows]}])[0]
    assert [one["right"] for one in found] == [[int(label)] for label in batch.labels]


def test_attention_set_by_hand_is_the_measures_intervention() -> None:
    from interp.measures.attention_ratios import attention_hook

    model = interp.load("count01/paper")
    subject = Subject.of(model)
    batch = Count01().sentences(torch.tensor([[3, 4, 1], [14, 4, 20]]))
    for number, length in enumerate(batch.lengths.tolist()):
        one = Batch(
            batch.tokens[number : number + 1, :length], torch.tensor([length]), batch.labels[number : number + 1]
        )
        place = length - 3  # of '=', after which come the answer and [EOS]
        hook = ("blocks.0.attn.hook_pattern", attention_hook(model, one, 0.5, 8.0))
        logits = torch_run(subject, one.tokens[0], [hook])[0]
        job = {"tokens": one.tokens[0, : place + 1].tolist(), "ratios": [0.5, 8.0]}
        found = run([{"payload": payload(subject), "runs": [job]}])[0][0]
        answer = numbers(found["logits"], (place + 1, logits.shape[1]))[place]
        assert deviation(answer, logits[place]) < TOLERANCE
        assert deviation(numbers(found["counted"][0], logits.shape[1:]), logits[place]) < TOLERANCE


@pytest.mark.parametrize("name", [name for name, kind in registered_tasks().items() if not kind.needs_tables])
@pytest.mark.thinned(3)
def test_rules_mean_the_same_in_the_page(name: str) -> None:
    task = make_task(name)
    if task.rule is None:
        pytest.skip(f"task {name} has no rule")
    batch = task.sample(12, task.splits[-1], seed=4)
    rows = [row[: int(length)].tolist() for row, length in zip(batch.tokens, batch.lengths)]
    ask = """const [payload, rows] = given, truth = makeTruth(payload);
    return rows.map((row) => row.map((_, place) => truth(row, place)));"""
    about = {"task": {"rule": task.rule, "n_out": task.n_out}, "frame": {"only": None}}
    for row, said in zip(rows, javascript(ask, [about, rows])):
        wanted = [evaluate(task.rule, row, place) for place in range(len(row))]
        assert said == [answer if 0 <= answer < max(2, task.n_out) else None for answer in wanted]


def test_every_choice_of_files_is_a_small_program() -> None:
    panels = [{"counts": {"sliders": []}}, {"lengths": [1]}, {"table": {"rows": []}}, {"generates": {"stop": 1}}]
    assert all(any(needed(panel) for panel in panels) for needed in FILES.values())
    assert len(script(panels).encode()) < 110_000
    for chosen in (panels[:1], panels[1:], panels):
        checked = subprocess.run(["node", "--check", "-"], input=script(chosen), text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
