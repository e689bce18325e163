// From a state to numbers: the model as edited, and the unchanged model on the same input as its ghost.

const partName = (part) => {
  const [layer, head] = part.split(".");
  return head === "mlp" ? `MLP ${layer}` : `head ${part}`;
};

// Silenced heads and MLPs, and attention set by hand, as edits of named activations.
function editsOf(model, state, tokens) {
  const edits = new Edits(), { arch } = model;
  for (const part of state.off) {
    const [layer, head] = part.split(".");
    if (head === "mlp") {
      edits.edit(`blocks.${layer}.hook_mlp_out`, ({ data }) => { data.fill(0); });
    } else {
      edits.edit(`blocks.${layer}.attn.hook_z`, ({ shape: [n, heads, d_head], data }) => {
        for (let i = 0; i < n; i++) data.fill(0, (i * heads + +head) * d_head, (i * heads + +head + 1) * d_head);
      });
    }
  }
  if (state.ratios) {
    const weights = ratioWeights(model, state.ratios), places = readPositions(model, tokens);
    edits.edit(`blocks.${arch.layers.length - 1}.attn.hook_pattern`, ({ shape: [heads, n], data }) => {
      for (let h = 0; h < heads; h++) {
        for (const place of places) {
          const row = tokens.map((token, j) => (j <= place ? weights[token] : 0));
          const total = row.reduce((a, b) => a + b, 0);
          row.forEach((weight, j) => { data[(h * n + place) * n + j] = total > 0 ? weight / total : 0; });
        }
      }
    });
  }
  return edits;
}

const silenced = (model, off) => Array.from({ length: model.arch.layers[0].n_heads }, (_, h) => off.includes(`0.${h}`));

// Unnormalized attention of one key of each token: the first slider's token 1, the others 1 / ratio, the rest none.
function ratioWeights(model, ratios) {
  const weights = new Float64Array(model.task.vocabulary.length);
  model.sliders.slice(0, 3).forEach(({ token }, i) => { weights[token] = i ? 1 / ratios[i - 1] : 1; });
  return weights;
}

// Everything shown of one input. `at`: the position whose answer is looked at.
function runSequence(model, truth, state) {
  const tokens = state.tokens, places = readPositions(model, tokens), untouched = { ...state, off: [], ratios: null };
  const run = (edited) => forward(model, tokens, editsOf(model, edited, tokens), { result: model.additive });
  const now = run(state), ghost = state.off.length || state.ratios ? run(untouched) : now;
  const at = places.includes(state.at) ? state.at : places.length ? places[model.task.readout === "all" ? firstKnown() : 0] : 0;
  const outs = model.arch.n_out, row = (found, place) => found.logits.slice(place * outs, (place + 1) * outs);
  const answers = places.map((place) => ({
    place,
    answer: decide(model.task, row(now, place)),
    before: decide(model.task, row(ghost, place)),
    right: truth(tokens, place),
  }));
  return { tokens, places, at, now, ghost, answers, logits: row(now, at), ghostLogits: row(ghost, at) };

  function firstKnown() {
    const found = places.findIndex((place) => truth(tokens, place) !== null);
    return found < 0 ? Math.max(0, places.indexOf(model.firstRead)) : found;
  }
}

// The answer at the position that is looked at, the unchanged model's, and what is right (null: not known).
function lookedAt(model, { answers, at, logits, ghostLogits }) {
  return answers.find(({ place }) => place === at) || { answer: decide(model.task, logits), before: decide(model.task, ghostLogits), right: null };
}

// What each part adds to logit `a` minus logit `b` (or minus the mean logit, b = null) at a position. The scale of a
// final norm is that of the run.
function attribution(model, found, place, a, b) {
  const { arch, weights } = model, d = arch.d_model, outs = arch.n_out, { cache } = found;
  const unembed = weights["unembed.W_U"].data, direction = new Float64Array(d);
  for (let j = 0; j < d; j++) {
    let mean = 0;
    for (let o = 0; o < outs; o++) mean += unembed[j * outs + o] / outs;
    direction[j] = unembed[j * outs + a] - (b === null ? (outs > 1 ? mean : 0) : b < 0 ? 0 : unembed[j * outs + b]);
  }
  const biases = weights["unembed.b_U"] ? weights["unembed.b_U"].data : new Float64Array(outs);
  let constant = biases[a] - (b === null ? (outs > 1 ? biases.reduce((x, y) => x + y, 0) / outs : 0) : b < 0 ? 0 : biases[b]);
  if (arch.final_norm) {
    const w = weights["ln_final.w"], bias = weights["ln_final.b"], scale = cache["ln_final.hook_scale"].data[place];
    if (bias) for (let j = 0; j < d; j++) constant += bias.data[j] * direction[j];
    let mean = 0;
    for (let j = 0; j < d; j++) { direction[j] *= (w ? w.data[j] : 1) / scale; mean += direction[j] / d; }
    if (arch.final_kind !== "rms") for (let j = 0; j < d; j++) direction[j] -= mean; // a layer norm subtracts the mean of what it reads
  }
  const dot = (data, start) => { let total = 0; for (let j = 0; j < d; j++) total += data[start + j] * direction[j]; return total; };
  const rows = [["embedding", dot(cache.hook_embed.data, place * d)]];
  if (!["none", "rotary", "alibi"].includes(arch.positions.name) && cache.hook_pos_embed) rows.push(["positions", dot(cache.hook_pos_embed.data, place * d)]);
  arch.layers.forEach((layer, index) => {
    const at = `blocks.${index}.`;
    for (let h = 0; h < layer.n_heads; h++) {
      rows.push([partName(`${index}.${h}`), dot(cache[`${at}attn.hook_result`].data, (place * layer.n_heads + h) * d)]);
    }
    if (weights[`${at}attn.b_O`]) constant += dot(weights[`${at}attn.b_O`].data, 0);
    if (layer.mlp) rows.push([partName(`${index}.mlp`), dot(cache[`${at}hook_mlp_out`].data, place * d)]);
  });
  rows.push(["constants", constant]);
  return rows;
}
