// The panel of models that only count: sliders, each head's attention as bars and its output in a plane, attention set
// by hand, and a map of the wrong answers on nearby inputs.

const HALF = 12; // the map shows differences from -HALF to HALF

function fitsCounts(payload, counts) {
  const { sliders } = payload.counts;
  return Array.isArray(counts) && counts.length === sliders.length && counts.every((value, i) => value <= sliders[i].max);
}

// All keys that the query sees: the fixed tokens of the prompt, and the sliders' counts.
function allCounts(panel, counts) {
  const all = panel.payload.counts.fixed.slice();
  panel.model.sliders.forEach(({ token }, i) => { all[token] += counts[i]; });
  return all;
}

// One row of tokens with these counts; the order does not matter.
function countTokens(panel, counts = panel.store.state.counts) {
  const { prefix, suffix } = panel.payload.frame;
  return [...prefix, ...panel.model.sliders.flatMap(({ token }, i) => new Array(counts[i]).fill(token)), ...suffix];
}

function runCounts(panel) {
  const { model, store, truth, payload } = panel, { counts, off, ratios } = store.state, { query } = payload.counts;
  const all = allCounts(panel, counts), silent = silenced(model, off), weights = ratios && ratioWeights(model, ratios);
  const now = countForward(model.tables, query, all, silent, weights), ghost = store.edited ? countForward(model.tables, query, all) : now;
  const tokens = countTokens(panel), at = readPositions(model, tokens)[0];
  return {
    tokens, at, now, ghost, logits: now.logits, ghostLogits: ghost.logits, silent, weights, where: "",
    answer: decide(model.task, now.logits), before: decide(model.task, ghost.logits), right: truth(tokens, at),
  };
}

// The counts that a figure's point stands for: given, or of a row of tokens, or of a difference of the first two, then
// with as many of the first as now, and of the third as the figure says.
function countsOf({ model, store }, { counts, tokens, difference }) {
  if (counts) return counts;
  if (tokens) return model.sliders.map(({ token }) => tokens.filter((each) => each === token).length);
  if (!difference) return null;
  const found = store.state.counts.slice(), [more, third] = difference;
  found[0] = Math.max(0, Math.min(found[0], model.sliders[1].max - more), -more);
  found[1] = found[0] + more;
  if (third !== undefined && found.length > 2) found[2] = third;
  return found;
}

function countParts(panel) {
  const parts = [slidersPart(panel), answerPart(panel), ratiosPart(panel)];
  if (panel.payload.counts.axes) parts.push(mapPart(panel));
  return [...parts, headsPart(panel)];
}

function slidersPart(panel) {
  const { model, store, payload } = panel, { vocabulary } = model.task, prompt = el("p", { class: "live-prompt" });
  const rows = model.sliders.map(({ token, max }, i) => {
    const set = (value) => {
      if (!Number.isFinite(value)) return;
      const counts = store.state.counts.slice();
      counts[i] = Math.max(0, Math.min(max, Math.round(value)));
      store.set({ counts }, `count ${i}`);
    };
    const label = `Number of ${vocabulary[token]}`, id = `${panel.key}-count-${i}`;
    const slider = el("input", { type: "range", min: 0, max, step: 1, id, "aria-label": label, oninput: (event) => set(+event.target.value) });
    const box = el("input", { type: "number", min: 0, max, step: 1, "aria-label": `${label}, as a number`, onchange: (event) => set(+event.target.value) });
    return { slider, box, node: el("div", { class: "live-slider" }, el("label", { for: id }, el("i", { class: "live-swatch", style: `background:${tokenColor(i)}` }), vocabulary[token]), slider, box) };
  });
  const node = el("div", { class: "live-card" }, el("h4", {}, "Input"), rows.map((row) => row.node), prompt);
  const update = () => {
    const { counts } = store.state, { prefix, suffix } = payload.frame;
    rows.forEach(({ slider, box }, i) => { slider.value = counts[i]; if (document.activeElement !== box) box.value = counts[i]; });
    const runs = model.sliders.map(({ token }, i) => `${vocabulary[token]}\u00d7${counts[i]}`);
    setText(prompt, `${[...prefix.map((id) => vocabulary[id]), ...runs, ...suffix.map((id) => vocabulary[id])].join(" ")} (in any order, ${panel.sequence().length} tokens)`);
  };
  return { node, update };
}

// Attention at the answer set by hand, the same for all heads: the first token's weight relative to the others'.
function ratiosPart(panel) {
  const { model, store } = panel, { vocabulary } = model.task, [first, ...others] = model.sliders.slice(0, 3).map(({ token }) => vocabulary[token]);
  const on = el("input", { type: "checkbox" });
  on.addEventListener("change", () => store.set({ ratios: on.checked ? [1, ...(others.length > 1 ? [1] : [])].concat(others.length > 1 ? [] : [1]) : null }));
  const rows = others.map((other, i) => {
    const name = `w${first}${other}`, id = `${panel.key}-ratio-${i}`;
    const slider = el("input", { type: "range", min: -3, max: 3, step: 0.05, id, oninput: (event) => {
      const ratios = store.state.ratios.slice();
      ratios[i] = Number((10 ** +event.target.value).toPrecision(4));
      store.set({ ratios }, `ratio ${i}`);
    } });
    const value = el("output", { for: id });
    return { slider, value, node: el("div", { class: "live-slider" }, el("label", { for: id, title: `attention to one ${first}, divided by attention to one ${other}` }, name), slider, value) };
  });
  const node = el("div", { class: "live-card" }, el("h4", {}, "Attention by hand"),
    el("label", { class: "live-check" }, on, " set it for every head"), rows.map((row) => row.node),
    el("p", { class: "live-note" }, others.map((other) => `w${first}${other}: attention to one ${first}, divided by attention to one ${other}`).join("; ") + ". All other tokens get none."));
  const update = () => {
    const { ratios } = store.state;
    on.checked = ratios !== null;
    rows.forEach(({ slider, value }, i) => {
      slider.disabled = ratios === null;
      slider.value = ratios ? Math.log10(ratios[i]) : 0;
      setText(value, ratios ? String(Number(ratios[i].toPrecision(3))) : "\u2013");
    });
  };
  return { node, update };
}

// Each head: its switch, its attention on each token (the unchanged model's below), its output in its plane.
function headsPart(panel) {
  const { model, store, payload } = panel, { heads, d_head, vocabulary } = model.tables, words = model.task.vocabulary;
  const shown = payload.counts.tokens, planes = payload.counts.planes, grid = el("div", { class: "live-planes" });
  const paint = (token) => { const i = model.sliders.findIndex((slider) => slider.token === token); return i >= 0 ? tokenColor(i) : `var(--series-${6 - (shown.indexOf(token) % 2) * 3})`; };
  const legend = el("p", { class: "live-legend" }, shown.map((token) => el("span", {}, el("i", { class: "live-swatch", style: `background:${paint(token)}` }), words[token])));
  const bars = (className) => shown.map((token) => el("span", { style: `background:${paint(token)}`, class: className }));
  const cards = Array.from({ length: heads }, (_, h) => {
    const turn = partSwitch(panel, `0.${h}`), now = bars(""), ghost = bars(""), picture = planes ? plane(h) : null;
    const attention = el("div", { class: "live-shares", role: "img" }, now), below = el("div", { class: "live-shares live-before", "aria-hidden": "true" }, ghost);
    const node = el("div", { class: "live-head" }, el("label", {}, turn.box, `head 0.${h}`), attention, below, picture ? picture.node : "");
    [attention, picture && picture.node].forEach((each) => each && each.addEventListener("click", () => store.set({ head: `0.${h}` })));
    grid.append(node);
    return { turn, now, ghost, attention, picture, node };
  });
  const node = el("div", { class: "live-card live-wide" }, el("h4", {}, "Heads: attention and output"), legend, grid, el("p", { class: "live-note" },
    "Bar: total attention to all keys of one token (thin: the unchanged model). " + (planes ? `${payload.counts.plane_words} Dot: the head's output; ring: that of the unchanged model; letters: the value vectors of the tokens (the dot moves between them); line: the separator of the two answers, fitted on training inputs.` : "")));

  // The plane of one head: value vectors and separator stand still, the dot moves.
  function plane(h) {
    const { mean, axes, line } = planes[h], project = (z) => axes.map((axis) => axis.reduce((total, weight, c) => total + weight * (z[c] - mean[c]), 0));
    const corner = (token) => project(Array.from({ length: d_head }, (_, c) => model.tables.values[(token * heads + h) * d_head + c]));
    const corners = shown.map(corner), xs = corners.map(([x]) => x), ys = corners.map((point) => point[1] || 0);
    const middle = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
    const reach = Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), 1e-12) * 0.62;
    const to = ([x, y]) => [50 + (x - middle[0]) / reach * 50, 50 - ((y || 0) - middle[1]) / reach * 50];
    const items = [];
    if (line) {
      const [w1, w2, b] = line, size = Math.hypot(w1, w2), from = -(w1 * middle[0] + w2 * middle[1] + b) / size / size;
      const base = [middle[0] + w1 * from, middle[1] + w2 * from], ends = [-3, 3].map((t) => to([base[0] - w2 / size * reach * t, base[1] + w1 / size * reach * t]));
      if (ends.flat().every(Number.isFinite)) items.push(svg("line", { x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1], class: "live-separator" }));
    }
    const places = corners.map(to);
    shown.forEach((token, i) => items.push(svg("circle", { cx: places[i][0], cy: places[i][1], r: 2.2, style: `fill:${paint(token)}` }), svg("text", { x: places[i][0] + (places[i][0] > 80 ? -3 : 3), y: places[i][1] - 3, "text-anchor": places[i][0] > 80 ? "end" : "start" }, words[token].replace(/[[\]]/g, ""))));
    const ring = svg("circle", { r: 4.5, class: "live-ring" }), dot = svg("circle", { r: 3.2, class: "live-dot" });
    const node = svg("svg", { viewBox: "0 0 100 100", class: "live-plane", role: "img" }, ...items, ring, dot);
    const move = (mark, z) => { const [x, y] = to(project(z)); mark.setAttribute("cx", x); mark.setAttribute("cy", y); };
    return { node, move: (z, before, off) => { move(dot, z); move(ring, before); setAttributes(dot, { visibility: off ? "hidden" : "visible" }); } };
  }

  const update = (found) => {
    cards.forEach((card, h) => {
      card.turn.update();
      const part = (list, token) => list.shares[h * vocabulary + token];
      shown.forEach((token, i) => {
        card.now[i].style.width = `${100 * part(found.now, token)}%`;
        card.ghost[i].style.width = `${100 * part(found.ghost, token)}%`;
      });
      card.attention.setAttribute("aria-label", `head 0.${h} attends: ${shown.map((token) => `${words[token]} ${share(part(found.now, token))}`).join(", ")}`);
      card.attention.title = card.attention.getAttribute("aria-label");
      card.node.classList.toggle("off", found.silent[h]);
      card.node.classList.toggle("live-marked", store.state.head === `0.${h}`);
      if (card.picture) card.picture.move(found.now.z.subarray(h * d_head, (h + 1) * d_head), found.ghost.z.subarray(h * d_head, (h + 1) * d_head), found.silent[h]);
    });
  };
  return { node, update };
}

// Decisions for many inputs at once: exponentials once per head and token, then sums.
function countDecider(panel, silent, weights) {
  const { model, payload } = panel, { heads, d_head, outs, vocabulary, scores, values, readout, offset } = model.tables, { query, tokens } = payload.counts;
  const n = tokens.length, on = Array.from({ length: heads }, (_, h) => h).filter((h) => !silent[h]);
  const factors = new Float64Array(on.length * n), effects = new Float64Array(on.length * n * outs);
  for (const [place, h] of on.entries()) {
    const row = tokens.map((token) => scores[(h * vocabulary + query) * vocabulary + token]), highest = Math.max(...row);
    if (!weights && highest - Math.min(...row) > 500) { // exponentials would underflow: use the slower, stable way
      return (counts) => decide(model.task, countForward(model.tables, query, counts, silent, weights).logits);
    }
    tokens.forEach((token, i) => {
      factors[place * n + i] = weights ? weights[token] : Math.exp(row[i] - highest);
      for (let o = 0; o < outs; o++) {
        for (let c = 0; c < d_head; c++) effects[(place * n + i) * outs + o] += values[(token * heads + h) * d_head + c] * readout[h][c * outs + o];
      }
    });
  }
  const logits = new Float64Array(outs), mine = new Float64Array(n);
  return (counts) => {
    for (let o = 0; o < outs; o++) logits[o] = offset[query * outs + o];
    for (let place = 0; place < on.length; place++) {
      let total = 0;
      for (let i = 0; i < n; i++) total += mine[i] = counts[tokens[i]] * factors[place * n + i];
      if (!(total > 0)) continue;
      for (let i = 0; i < n; i++) {
        if (mine[i] === 0) continue;
        const part = mine[i] / total, from = (place * n + i) * outs;
        for (let o = 0; o < outs; o++) logits[o] += part * effects[from + o];
      }
    }
    return decide(model.task, logits);
  };
}

// A map of the wrong answers around the current input: the difference of two counts against the first of them.
function mapPart(panel) {
  const { model, store, payload, truth } = panel, { vocabulary } = model.task, [a, b] = payload.counts.axes, { sliders } = model;
  const names = [a, b].map((i) => vocabulary[sliders[i].token]), most = Math.min(sliders[a].max, 400), step = Math.max(1, Math.round(most / 100)), columns = Math.floor(most / step) + 1;
  const canvas = el("canvas", { class: "live-map" }), mark = el("i", { class: "live-mark" }), words = el("p", { class: "live-note live-steady" });
  const node = el("div", { class: "live-card" }, el("h4", {}, "Wrong inputs around this one"),
    el("div", { class: "live-mapbox" }, el("span", { class: "live-y" }, `number of ${names[1]} minus number of ${names[0]}`), el("div", { class: "live-frame" }, canvas, mark, el("i", { class: "live-midline" })), el("span", { class: "live-ticks" }, el("span", {}, "0"), el("span", {}, `number of ${names[0]}`), el("span", {}, String(most)))), words);
  const byCounts = payload.task.rule && countsOnly(payload.task.rule);
  const right = (counts) => {
    if (byCounts) return truth([], 0, allCounts(panel, counts));
    const tokens = countTokens(panel, counts);
    return truth(tokens, readPositions(model, tokens)[0]);
  };
  const input = (x, y) => { const counts = store.state.counts.slice(); counts[a] = x * step; counts[b] = x * step + HALF - y; return counts; };
  canvas.addEventListener("click", (event) => {
    const counts = input(Math.floor(event.offsetX / canvas.clientWidth * columns), Math.floor(event.offsetY / canvas.clientHeight * (2 * HALF + 1)));
    if (fitsCounts(payload, counts) && counts[b] >= 0) store.set({ counts });
  });
  // Right answers and those of the unchanged model are stored, because edits do not change them.
  let known = "", goals = [], ghosts = [];
  const remember = () => {
    const others = store.state.counts.filter((_, i) => i !== a && i !== b).join();
    if (others === known) return;
    known = others;
    goals = [];
    ghosts = [];
    const untouched = countDecider(panel, [], null);
    for (let y = 0; y <= 2 * HALF; y++) {
      for (let x = 0; x < columns; x++) {
        const counts = input(x, y), goal = counts[b] < 0 || counts[b] > sliders[b].max ? null : right(counts);
        goals.push(goal);
        ghosts.push(goal === null ? null : untouched(allCounts(panel, counts)));
      }
    }
  };
  const update = (found) => {
    remember();
    const now = store.edited ? countDecider(panel, found.silent, found.weights) : null;
    const paper = rgb("panel"), bad = rgb("warning"), grey = rgb("muted"), outside = rgb("grid");
    let wrong = 0, before = 0, seen = 0;
    drawCells(canvas, columns, 2 * HALF + 1, (x, y) => {
      const at = y * columns + x, goal = goals[at];
      if (goal === null) return [...outside, 255];
      const erred = ghosts[at] !== goal, errs = now ? now(allCounts(panel, input(x, y))) !== goal : erred;
      seen += 1; wrong += errs; before += erred;
      return [...(errs ? bad : erred ? grey : paper), 255];
    });
    const counts = store.state.counts, y = HALF - (counts[b] - counts[a]);
    mark.style.cssText = `left:${(counts[a] / step + 0.5) / columns * 100}%;top:${(Math.min(2 * HALF, Math.max(0, y)) + 0.5) / (2 * HALF + 1) * 100}%;opacity:${y < 0 || y > 2 * HALF ? 0.35 : 1}`;
    const others = sliders.map(({ token }, i) => (i === a || i === b ? "" : `${counts[i]} × '${vocabulary[token]}'`)).filter(Boolean).join(", ");
    setText(words, `${others ? `With ${others}: ` : ""}${wrong} of the ${seen} inputs shown are answered wrongly${now ? `, ${before} by the unchanged model (gray: only that one errs)` : ""}. Click to load an input.`);
  };
  return { node, update };
}
