"""Train one histogram model on one core in compiled code: sampler, labels, forward, hand-written backward, Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.errors import InterpError, one_of
from interp.theory.block_samplers import check_sampler
from interp.training.compiled import histogram_loop
from interp.training.compiled.histogram_layout import Sizes, layout, workspace

WORK_BATCH = 32  # sequences processed together, unless a training batch is larger


class HistogramKernel:
    """The compiled training loop of one of the six histogram models (Behrens et al. 2024, section 3).

    mixing: "dot" has scores (x W_Q)(x W_K)^T / sqrt(d) of all pairs of positions, "lin" a learned L x L matrix.
    softmax: whether to normalize each row. bos: whether a token with id T comes before the sequence, which is mixed but
    not read ("dot" only). Value and output are the identity, so x' = x + A x. The logits are relu(x' W_in + b_in) W_out
    + b_out, with p hidden units and n_out classes: n_out = L + 1 (class = count) or n_out = L (class = count - 1).

    The parameters are one flat vector of `dtype` (float32 or float64) with padding; `views` names its parts. A kernel
    owns the work arrays of one model in training: use one per thread. The compiled code releases the GIL. Raises
    InterpError for an impossible size or name.
    """

    def __init__(
        self,
        mixing: str,
        softmax: bool,
        bos: bool,
        T: int,
        L: int,
        d: int,
        p: int,
        n_out: int,
        dtype: Any = np.float32,
        frozen_embedding: bool = False,
        sampler: str = "published",
    ) -> None:
        if mixing not in ("dot", "lin"):
            raise InterpError(one_of("mixing", mixing, ("dot", "lin")))
        if bos and mixing == "lin":
            raise InterpError("mixing 'lin' has no BOS token; bos=True needs mixing 'dot'")
        for name, value in (("T", T), ("L", L), ("d", d), ("p", p)):
            if value < 1:
                raise InterpError(f"{name} = {value}; it must be at least 1")
        if n_out not in (L, L + 1):
            raise InterpError(f"n_out = {n_out}; the counts of length L = {L} need {L} or {L + 1} classes")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise InterpError(f"dtype {self.dtype}; the compiled kernels train in float32 or float64")
        check_sampler(sampler)
        self.sampler = sampler
        self.sizes = Sizes(
            T=int(T),
            vocab=int(T) + bool(bos),
            L=int(L),
            d=int(d),
            p=int(p),
            classes=int(n_out),
            first=int(L + 1 - n_out),
            dot=mixing == "dot",
            softmax=bool(softmax),
            bos=bool(bos),
            frozen=bool(frozen_embedding),
            scale=float(d) ** -0.5,
        )
        self.layout = layout(self.sizes, self.dtype)
        self._grad = self.init_flat()
        self.size = len(self._grad)
        self._grads = self.layout.blocks(self._grad)
        self._work = workspace(self.sizes, WORK_BATCH, self.dtype)

    def init_flat(self) -> np.ndarray:
        """Return aligned zeros for a parameter vector or a moment of Adam; set the parameters through `views`."""
        return self.layout.zeros()

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters in `flat` by name, as views: writing to them changes `flat`.

        These are embed.W_E (T or T + 1, d), blocks.0.attn.W_Q and W_K (1, d, d) or W_mix (1, L, L), unembed.W_in
        (d, p), b_in (p), W_out (p, n_out), b_out (n_out).
        """
        return self.layout.views(self._checked(flat))

    def run_epoch(
        self,
        flat: np.ndarray,
        m: np.ndarray,
        v: np.ndarray,
        step: int,
        rng_seed: int,
        n_samples: int = 10_000,
        batch: int = 32,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
    ) -> float:
        """Train on n_samples fresh sequences, in place; return the mean loss per position, measured before each update.

        step: Adam steps done before (an epoch does ceil(n_samples / batch), the last on the remainder). rng_seed (64
        bits) determines the epoch's data: use a different one per run and epoch. Frozen embeddings do not change.
        """
        self._check_alphabet()
        if n_samples < 1 or batch < 1:
            raise InterpError(f"n_samples = {n_samples} in batches of {batch}; both must be at least 1")
        if batch > len(self._work.distinct):
            self._work = workspace(self.sizes, batch, self.dtype)
        sizes, beta1, beta2 = self.sizes, float(betas[0]), float(betas[1])
        params, m, v = self.layout.blocks(self._checked(flat)), self._checked(m), self._checked(v)
        loss: float = histogram_loop.run_epoch(
            sizes, params, self._grads, self._work, flat, self._grad, m, v,
            int(step), np.uint64(rng_seed), int(n_samples), int(batch), self.sampler == "published",
            float(lr), beta1, beta2, float(eps),
        )  # fmt: skip
        return loss

    def touch(self) -> None:
        """Compile or load the code for training, or wait until another thread has. Changes no parameters."""
        flat = self.init_flat()
        self.evaluate(flat, np.zeros((1, self.sizes.L), np.int64))
        params = self.layout.blocks(flat)
        histogram_loop.run_epoch(
            self.sizes, params, self._grads, self._work, flat, self._grad, flat, flat,
            0, np.uint64(0), 0, 1, self.sampler == "published", 0.0, 0.0, 0.0, 0.0,
        )  # fmt: skip

    def loss_and_grad(self, flat: np.ndarray, tokens: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean loss over tokens (batch, L) and its gradient in the layout of `flat` (0 where frozen)."""
        tokens = self._checked_tokens(tokens)
        work = workspace(self.sizes, len(tokens), self.dtype)
        grad = self.init_flat()
        loss = histogram_loop.loss_and_grad(
            self.sizes, self.layout.blocks(self._checked(flat)), self.layout.blocks(grad), work, tokens
        )
        return loss, grad

    def logits(self, flat: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the logits (batch, L, n_out) of tokens (batch, L)."""
        tokens = self._checked_tokens(tokens)
        out = np.empty((len(tokens), self.sizes.L, self.sizes.classes), self.dtype)
        histogram_loop.logits_of_tokens(self.sizes, self.layout.blocks(self._checked(flat)), self._work, tokens, out)
        return out

    def evaluate(
        self, flat: np.ndarray, tokens: np.ndarray | None = None, *, seed: int | None = None, n: int = 3000
    ) -> float:
        """Return the share of right answers on tokens (batch, L), or on n sequences drawn with `seed`."""
        if (tokens is None) == (seed is None):
            raise InterpError("evaluate needs either tokens or a seed to draw them from")
        if tokens is None:
            assert seed is not None
            tokens = self.draw(seed, n)
        params, tokens = self.layout.blocks(self._checked(flat)), self._checked_tokens(tokens)
        return float(histogram_loop.accuracy(self.sizes, params, self._work, tokens))

    def draw(self, seed: int, n: int) -> np.ndarray:
        """Draw n sequences, (n, L) int64, with this kernel's sampler; equal seeds give equal sequences."""
        self._check_alphabet()
        tokens = np.empty((n, self.sizes.L), np.int64)
        histogram_loop.draw_tokens(np.uint64(seed), tokens, self.sizes.T, self.sampler == "published")
        return tokens

    def _check_alphabet(self) -> None:
        if self.sizes.T < self.sizes.L:
            raise InterpError(
                f"T = {self.sizes.T} tokens for length L = {self.sizes.L}: the sampler may need L different tokens, "
                "so T must be at least L"
            )

    def _checked(self, flat: np.ndarray) -> np.ndarray:
        if flat.shape != (self.size,) or flat.dtype != self.dtype or not flat.flags.c_contiguous:
            raise InterpError(
                f"a vector of shape {flat.shape} and dtype {flat.dtype}; this kernel's are contiguous, "
                f"({self.size},) {self.dtype}: use init_flat()"
            )
        return flat

    def _checked_tokens(self, tokens: np.ndarray) -> np.ndarray:
        tokens = np.ascontiguousarray(tokens, np.int64)
        if tokens.ndim != 2 or tokens.shape[1] != self.sizes.L or len(tokens) == 0:
            raise InterpError(
                f"tokens of shape {tokens.shape}; expected (batch, {self.sizes.L}) with at least one sequence"
            )
        if tokens.min() < 0 or tokens.max() >= self.sizes.T:
            raise InterpError(
                f"tokens from {tokens.min()} to {tokens.max()}; the alphabet is 0..{self.sizes.T - 1} "
                "(BOS is put in by the model)"
            )
        return tokens
