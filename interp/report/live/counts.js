// The same model on token counts: attention without positions cannot tell the order of the keys, so that an answer
// depends only on its own token and on how often each token stands before it. A row of any length costs the same.

// All that depends on tokens alone: scores [head][query][key], values, readout of each head, offset [query][out].
function countTables(model) {
  const { arch, weights } = model, layer = arch.layers[0], { n_heads: heads, d_head } = layer;
  const vocabulary = model.task.vocabulary.length, d = arch.d_model, outs = arch.n_out;
  const all = Array.from({ length: vocabulary }, (_, token) => token);
  // One forward over the vocabulary gives every token's query, key and value, layer norm included.
  const open = { ...model, arch: { ...arch, masks: false, causal: false } };
  const { cache } = forward(open, all);
  const scores = cache["blocks.0.attn.hook_attn_scores"].data;
  const values = cache["blocks.0.attn.hook_v"].data;
  const unembed = weights["unembed.W_U"].data, output = weights["blocks.0.attn.W_O"], readout = [];
  for (let h = 0; h < heads; h++) {
    readout.push(output ? multiply(output.data.subarray(h * d_head * d, (h + 1) * d_head * d), d_head, d, unembed, outs) : unembed);
  }
  const bias = weights["blocks.0.attn.b_O"], stream = cache["blocks.0.hook_resid_pre"].data;
  const skip = bias ? stream.map((value, i) => value + bias.data[i % d]) : stream;
  const offset = multiply(skip, vocabulary, d, unembed, outs, 0, weights["unembed.b_U"] && weights["unembed.b_U"].data);
  return { heads, d_head, outs, vocabulary, scores, values, readout, offset };
}

// counts[token]: how many keys of each token the query sees, itself included. off[head]: is it silenced?
// ratios: attention weight of one key of each token, set by hand for all heads, or null.
// Returns shares (heads, token: attention on all keys of that token), z (heads, d_head) and logits.
function countForward(tables, query, counts, off = [], ratios = null) {
  const { heads, d_head, outs, vocabulary, scores, values, readout, offset } = tables;
  const shares = new Float64Array(heads * vocabulary), z = new Float64Array(heads * d_head);
  const logits = offset.slice(query * outs, (query + 1) * outs);
  for (let h = 0; h < heads; h++) {
    const from = (h * vocabulary + query) * vocabulary, to = h * vocabulary;
    let highest = -Infinity, total = 0;
    for (let t = 0; t < vocabulary; t++) if (counts[t] > 0 && scores[from + t] > highest) highest = scores[from + t];
    for (let t = 0; t < vocabulary; t++) {
      if (!(counts[t] > 0)) continue;
      shares[to + t] = counts[t] * (ratios ? ratios[t] : Math.exp(scores[from + t] - highest));
      total += shares[to + t];
    }
    for (let t = 0; t < vocabulary; t++) {
      if (total > 0) shares[to + t] /= total;
      const share = shares[to + t];
      if (share !== 0) for (let c = 0; c < d_head; c++) z[h * d_head + c] += share * values[(t * heads + h) * d_head + c];
    }
    if (off[h]) z.fill(0, h * d_head, (h + 1) * d_head);
    for (let c = 0; c < d_head; c++) {
      for (let o = 0; o < outs; o++) logits[o] += z[h * d_head + c] * readout[h][c * outs + o];
    }
  }
  return { shares, z, logits };
}

// The counts of the tokens that a query at a place sees.
function countsAt(model, tokens, place) {
  const counts = new Array(model.task.vocabulary.length).fill(0), { arch, task } = model;
  tokens.forEach((token, i) => {
    if (arch.causal ? i <= place : !arch.masks || token !== task.pad) counts[token] += 1;
  });
  return counts;
}
