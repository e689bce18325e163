// The forward pass on one row of tokens. Every activation has its TransformerLens hook name, no batch axis, and can be
// edited.

function makeModel(payload) {
  const weights = {};
  for (const [name, { shape, dtype, data }] of Object.entries(payload.weights)) {
    weights[name] = { shape, data: decode(data, dtype) };
  }
  return { arch: payload.arch, weights, task: payload.task };
}

// The edits of one run: edit(name, value) replaces the activation `name`, by an array or by a function of
// {shape, data} that returns an array or changes data in place.
class Edits {
  constructor() { this.byName = new Map(); }
  edit(name, value) {
    this.byName.set(name, [...(this.byName.get(name) || []), value]);
    return this;
  }
  has(name) { return this.byName.has(name); }
  apply(name, activation) {
    for (const value of this.byName.get(name) || []) {
      const data = typeof value === "function" ? value(activation) || activation.data : Float64Array.from(value);
      if (data.length !== activation.data.length) {
        throw new Error(`${name} has ${activation.data.length} numbers, not ${data.length}`);
      }
      activation.data = data;
    }
    return activation;
  }
}

// {logits (length, n_out), cache: name -> {shape, data}}. Options: result (also cache hook_result of every layer).
function forward(model, tokens, edits = new Edits(), options = {}) {
  const { arch, weights } = model;
  const n = tokens.length, d = arch.d_model, cache = {};
  const hook = (name, shape, data) => (cache[name] = edits.apply(name, { shape, data })).data;
  const weight = (name) => (weights[name] ? weights[name].data : null);

  // A bidirectional task model sees no padding; a causal one has padding only after what it reads.
  const keep = tokens.map((token) => arch.causal || !arch.masks || token !== model.task.pad);
  const length = keep.filter(Boolean).length;

  const embedding = weight("embed.W_E"), embedded = new Float64Array(n * d);
  tokens.forEach((token, i) => embedded.set(embedding.subarray(token * d, (token + 1) * d), i * d));
  let x = hook("hook_embed", [n, d], embedded);
  if (arch.pos_embed) x = sum(x, hook("hook_pos_embed", [n, d], positionRows(model, n, length)));

  arch.layers.forEach((layer, index) => {
    const at = `blocks.${index}.`;
    const norm = (name, rows) => (layer.norm === "none" ? rows : layerNorm(at + name, rows, layer.eps, layer.norm_kind));
    x = hook(`${at}hook_resid_pre`, [n, d], x);
    const entering = layer.norm === "pre" ? norm("ln1", x) : x;
    const written = hook(`${at}hook_attn_out`, [n, d], attention(at + "attn.", layer, entering));
    let middle = sum(x, written);
    if (layer.parallel) { // attention and MLP read the same stream
      const added = hook(`${at}hook_mlp_out`, [n, d], mlp(at, layer, norm("ln2", x)));
      x = hook(`${at}hook_resid_post`, [n, d], sum(middle, added));
      return;
    }
    if (layer.norm === "post") {
      middle = norm("ln1", hook(`${at}hook_resid_mid_pre_ln`, [n, d], middle));
      if (arch.attn_only) { x = hook(`${at}hook_resid_post`, [n, d], hook(`${at}hook_resid_mid`, [n, d], middle)); return; }
    }
    if (arch.attn_only) { x = hook(`${at}hook_resid_post`, [n, d], middle); return; }
    middle = hook(`${at}hook_resid_mid`, [n, d], middle);
    const added = layer.mlp ? mlp(at, layer, layer.norm === "pre" ? norm("ln2", middle) : middle) : new Float64Array(n * d);
    x = sum(middle, hook(`${at}hook_mlp_out`, [n, d], added));
    if (layer.norm === "post") {
      x = hook(`${at}hook_resid_post_pre_ln`, [n, d], x);
      if (layer.mlp) x = norm("ln2", x);
    }
    x = hook(`${at}hook_resid_post`, [n, d], x);
  });
  if (arch.final_norm) x = layerNorm("ln_final", x, arch.final_norm, arch.final_kind);
  return { logits: readout(x), cache, final: x };

  // kind "rms" divides by the root mean square, and subtracts no mean.
  function layerNorm(at, rows, eps, kind) {
    const out = new Float64Array(n * d), scales = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      let mean = 0, variance = 0;
      for (let j = 0; j < d && kind !== "rms"; j++) mean += rows[i * d + j] / d;
      for (let j = 0; j < d; j++) variance += (rows[i * d + j] - mean) ** 2 / d;
      for (let j = 0; j < d; j++) out[i * d + j] = rows[i * d + j] - mean;
      scales[i] = Math.sqrt(variance + eps);
    }
    const scale = hook(`${at}.hook_scale`, [n, 1], scales);
    const normalized = hook(`${at}.hook_normalized`, [n, d], out.map((value, k) => value / scale[Math.floor(k / d)]));
    const w = weight(`${at}.w`), b = weight(`${at}.b`);
    return w ? normalized.map((value, k) => value * w[k % d] + (b ? b[k % d] : 0)) : normalized;
  }

  // rows (n, d) through one matrix for each head, as (n, heads, d_head); without a matrix it is the identity.
  function project(at, letter, rows, heads, d_head, absent = false) {
    const own = (name) => weight(at + name) || weight(`${at}_${name}`); // TransformerLens's name for shared keys and values
    const matrix = own(`W_${letter}`), bias = own(`b_${letter}`), out = new Float64Array(n * heads * d_head);
    for (let h = 0; h < heads && !absent; h++) {
      const mine = matrix ? multiply(rows, n, d, matrix, d_head, h * d * d_head, bias, h * d_head) : rows;
      for (let i = 0; i < n; i++) {
        for (let k = 0; k < d_head; k++) {
          out[(i * heads + h) * d_head + k] = mine[i * d_head + k] + (!matrix && bias ? bias[h * d_head + k] : 0);
        }
      }
    }
    return hook(`${at}hook_${letter.toLowerCase()}`, [n, heads, d_head], out);
  }

  // Queries or keys as they enter the scores: normalized if the layer does so, rotated if positions are rotary.
  function meeting(at, letter, layer, heads, rows) {
    const { d_head, query_key_eps: eps } = layer;
    const out = eps === null ? rows : unitRows(rows, d_head, eps, weight(`${at}${letter}_norm.w`));
    return arch.positions.name === "rotary" ? hook(`${at}hook_rot_${letter}`, [n, heads, d_head], rotated(out, n, heads, d_head, arch.positions)) : out;
  }

  function attention(at, layer, rows) {
    const { n_heads: heads, d_head, key_heads: held } = layer, shared = heads / held;
    const own = weight(`${at}W_pos`);
    if (own) rows = sum(rows, hook(`${at}hook_pos`, [n, d], own.slice(0, n * d)));
    const linear = layer.mixing === "linear";
    const asked = project(at, "Q", rows, heads, d_head, linear), kept = project(at, "K", rows, held, d_head, linear);
    const v = project(at, "V", rows, held, d_head);
    const q = meeting(at, "q", layer, heads, asked), k = meeting(at, "k", layer, held, kept);
    let factor = layer.scale;
    if (layer.log_length === "current") factor *= Math.log(Math.max(length, 1));
    else if (layer.log_length) factor *= Math.log(layer.log_length);

    let scores = new Float64Array(heads * n * n);
    const mixing = weight(`${at}W_mix`), side = linear ? weights[`${at}W_mix`].shape[1] : 0;
    for (let h = 0; h < heads; h++) {
      const from = Math.floor(h / shared), slope = arch.positions.name === "alibi" ? 2 ** (-8 * (h + 1) / heads) : 0;
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          const to = (h * n + i) * n + j;
          if (!keep[j] || (arch.causal && j > i)) { scores[to] = layer.softmax ? -Infinity : 0; continue; }
          if (linear) { scores[to] = mixing[(h * side + i) * side + j]; continue; }
          let product = 0;
          for (let c = 0; c < d_head; c++) product += q[(i * heads + h) * d_head + c] * k[(j * held + from) * d_head + c];
          scores[to] = product * factor - slope * Math.max(i - j, 0);
        }
      }
    }
    scores = hook(`${at}hook_attn_scores`, [heads, n, n], scores);
    let pattern = scores.slice();
    if (layer.softmax) for (let row = 0; row < heads * n; row++) softmaxAt(pattern, row * n, n);
    pattern = hook(`${at}hook_pattern`, [heads, n, n], pattern);
    let z = new Float64Array(n * heads * d_head);
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          const share = pattern[(h * n + i) * n + j];
          if (share === 0) continue;
          for (let c = 0; c < d_head; c++) z[(i * heads + h) * d_head + c] += share * v[(j * held + Math.floor(h / shared)) * d_head + c];
        }
      }
    }
    z = hook(`${at}hook_z`, [n, heads, d_head], z);
    const output = weight(`${at}W_O`), bias = weight(`${at}b_O`), out = new Float64Array(n * d);
    const wanted = options.result || edits.has(`${at}hook_result`);
    let result = wanted ? new Float64Array(n * heads * d) : null;
    for (let h = 0; h < heads; h++) {
      const mine = new Float64Array(n * d_head);
      for (let i = 0; i < n; i++) mine.set(z.subarray((i * heads + h) * d_head, (i * heads + h + 1) * d_head), i * d_head);
      const writes = output ? multiply(mine, n, d_head, output, d, h * d_head * d) : mine;
      if (wanted) for (let i = 0; i < n; i++) result.set(writes.subarray(i * d, (i + 1) * d), (i * heads + h) * d);
      else for (let m = 0; m < n * d; m++) out[m] += writes[m];
    }
    if (wanted) {
      result = hook(`${at}hook_result`, [n, heads, d], result);
      for (let m = 0; m < result.length; m++) out[Math.floor(m / (heads * d)) * d + (m % d)] += result[m];
    }
    return bias ? out.map((value, m) => value + bias[m % d]) : out;
  }

  function mlp(at, layer, rows) {
    const width = weights[`${at}mlp.W_in`].shape[1], activate = ACTIVATIONS[layer.mlp];
    const through = (name, bias) => multiply(rows, n, d, weight(`${at}mlp.${name}`), width, 0, bias), inner = weight(`${at}mlp.b_in`);
    const before = hook(`${at}mlp.hook_pre`, [n, width], layer.gated ? through("W_gate", null) : through("W_in", inner));
    let after = before.map((value) => activate(value));
    if (layer.gated) {
      const gated = hook(`${at}mlp.hook_pre_linear`, [n, width], through("W_in", null));
      after = after.map((value, m) => value * gated[m] + (inner ? inner[m % width] : 0));
    }
    after = hook(`${at}mlp.hook_post`, [n, width], after);
    return multiply(after, n, width, weight(`${at}mlp.W_out`), d, 0, weight(`${at}mlp.b_out`));
  }

  function readout(rows) {
    const entering = hook("unembed.hook_in", [n, d], rows);
    if (arch.readout !== "relu_mlp") {
      return hook("unembed.hook_out", [n, arch.n_out], multiply(entering, n, d, weight("unembed.W_U"), arch.n_out, 0, weight("unembed.b_U")));
    }
    const width = weights["unembed.W_in"].shape[1];
    const before = hook("unembed.hook_pre", [n, width], multiply(entering, n, d, weight("unembed.W_in"), width, 0, weight("unembed.b_in")));
    const after = hook("unembed.hook_post", [n, width], before.map(ACTIVATIONS.relu));
    return hook("unembed.hook_out", [n, arch.n_out], multiply(after, n, width, weight("unembed.W_out"), arch.n_out, 0, weight("unembed.b_out")));
  }
}

function positionRows(model, n, length) {
  const { arch, weights } = model, d = arch.d_model;
  if (weights["pos_embed.W_pos"]) return weights["pos_embed.W_pos"].data.slice(0, n * d);
  const rows = new Float64Array(n * d);
  if (!["none", "rotary", "alibi"].includes(arch.positions.name)) for (let i = 0; i < n; i++) rows.set(positionCode(arch.positions, i, length, d), i * d);
  return rows;
}

// The positions of a row whose outputs are answers: all of them, the first, the last that is not padding, or a token's first place.
function readPositions(model, tokens) {
  const { readout, pad } = model.task;
  if (readout === "all") return tokens.map((_, i) => i);
  if (readout === "first") return [0];
  if (readout === "last") return [tokens.filter((token) => token !== pad).length - 1];
  const place = tokens.indexOf(readout);
  return place < 0 ? [] : [place];
}
