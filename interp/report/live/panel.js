// One live panel: the parts that fit the model and its task, around one state.

const SELF_TEST = 1e-4; // largest deviation from the reference logits, relative to their spread

function makePanel(section, payload) {
  const model = makeModel(payload), { arch, task } = model, key = section.id;
  model.additive = arch.readout !== "relu_mlp" && arch.layers.every((layer) => layer.norm !== "post");
  model.sliders = payload.counts ? payload.counts.sliders : [];
  model.firstRead = payload.tests.places[0][0];
  const truth = makeTruth(payload), byCounts = Boolean(payload.counts);
  if (byCounts) model.tables = countTables(model);
  const tested = selfTest(model, payload);
  section.dataset.selfTest = tested.ok ? "ok" : "mismatch";
  section.dataset.deviation = tested.worst.toExponential(2);
  if (!tested.ok) {
    const words = `This browser does not reproduce the model's numbers (they differ by ${number(tested.worst, 6)} of their spread), so the live panel is switched off.`;
    section.querySelector(".live-body").replaceChildren(el("p", { class: "warning" }, words));
    return null;
  }

  const initial = { tokens: byCounts ? null : payload.examples[0], counts: byCounts ? payload.counts.start : null, off: [], ratios: null, at: null, head: null, pin: null };
  const panel = { key, model, payload, truth };
  const store = new Store(key, initial, () => panel.refresh());
  panel.store = store;
  store.state.off = store.state.off.filter((part) => isPart(model, part));
  if (byCounts ? !fitsCounts(payload, store.state.counts) : refuse(model, store.state.tokens)) {
    store.state = { ...store.state, tokens: initial.tokens, counts: initial.counts };
  }
  const live = el("p", { class: "live-hidden", role: "status", "aria-live": "polite" });
  let saying = null;
  panel.say = (words) => {
    clearTimeout(saying);
    saying = setTimeout(() => setText(live, words), 500); // not every step of a slider is read aloud
  };

  const parts = byCounts ? countParts(panel) : sequenceParts(panel);
  const undo = el("button", { type: "button", onclick: () => store.undo() }, "Undo"), reset = el("button", { type: "button", onclick: () => store.reset() }, "Reset");
  const code = el("code"), copied = el("span", { class: "live-note", role: "status" });
  const say = (worked, what) => { setText(copied, worked ? `${what} copied` : "Copying is not allowed here: select the text below"); setTimeout(() => setText(copied, ""), 4000); };
  const details = el("details", { class: "live-python" }, el("summary", {}, "As Python"), el("pre", { tabindex: "0" }, code));
  const copy = el("button", { type: "button", onclick: () => { code.textContent = pythonOf(panel); copyText(code.textContent, (worked) => { details.open ||= !worked; say(worked, "Python"); }); } }, "Copy as Python");
  const link = el("button", { type: "button", onclick: () => copyText(`${location.href.split("#")[0]}#${key}=${store.text()}`, (worked) => say(worked, "Link")) }, "Copy link");
  const bar = el("div", { class: "live-row live-bar" }, undo, reset, copy, location.protocol === "about:" ? "" : link, copied);
  section.querySelector(".live-body").replaceChildren(bar, el("div", { class: "live-parts" }, parts.map((part) => part.node)), details, live);
  details.addEventListener("toggle", () => { if (details.open) code.textContent = pythonOf(panel); });

  const draw = () => {
    const started = performance.now();
    panel.found = byCounts ? runCounts(panel) : sequenceFound(panel);
    parts.forEach((part) => part.update(panel.found));
    undo.disabled = !store.past.length;
    reset.disabled = JSON.stringify(store.state) === JSON.stringify(initial);
    if (details.open) code.textContent = pythonOf(panel);
    section.dataset.edited = String(store.edited);
    const marked = store.state.head || "";
    if ((section.dataset.head || "") !== marked) {
      section.dataset.head = marked;
      document.dispatchEvent(new CustomEvent("interp-head", { detail: section }));
    }
    section.dataset.milliseconds = (performance.now() - started).toFixed(1);
  };
  panel.refresh = oncePerFrame(draw);
  // Load the head and the input of a figure's point. Returns a sentence on what was loaded.
  panel.point = (text) => {
    const found = store.parse(text), patch = {}, taken = [];
    if (found.head === null || isPart(model, found.head || "")) {
      patch.head = found.head;
      if (found.head) taken.push(partName(found.head));
    }
    const counts = byCounts ? countsOf(panel, found) : null;
    if (counts && fitsCounts(payload, counts)) { patch.counts = counts; taken.push(`the input ${model.sliders.map(({ token }, i) => `${task.vocabulary[token]}\u00d7${counts[i]}`).join(" ")}`); }
    if (!byCounts && found.tokens && !refuse(model, found.tokens)) {
      Object.assign(patch, { tokens: found.tokens, at: found.at === undefined ? null : found.at });
      taken.push(`the input ${written(task.vocabulary, found.tokens.slice(0, 24))}${found.tokens.length > 24 ? "\u2026" : ""}`);
    }
    store.set(patch);
    return taken.length ? `In the live panel: ${taken.join(", ")}.` : "";
  };
  panel.sequence = () => (byCounts ? countTokens(panel) : store.state.tokens);
  addEventListener("hashchange", () => {
    const found = store.fromAddress();
    if (Object.keys(found).length) { store.state = { ...initial, ...found }; panel.refresh(); }
  });
  draw();
  return panel;
}

const isPart = (model, part) => {
  const [layer, head] = part.split("."), found = model.arch.layers[layer];
  return Boolean(found) && (head === "mlp" ? Boolean(found.mlp) : +head < found.n_heads);
};

function sequenceFound(panel) {
  const { model, truth, store } = panel, found = runSequence(model, truth, store.state);
  return { ...found, ...lookedAt(model, found), where: model.task.readout === "all" ? `position ${found.at} (${model.task.vocabulary[found.tokens[found.at]]})` : "" };
}

// The parts of a sequence panel, which depend on the model.
function sequenceParts(panel) {
  const { model, payload } = panel, { readout } = model.task, parts = [inputPart(panel)];
  if (payload.table) parts.push(tablePart(panel));
  if (payload.generates) parts.push(generatedPart(panel));
  if (readout === "all") parts.push(positionsPart(panel));
  parts.push(answerPart(panel));
  if (model.arch.readout === "relu_mlp" || (!model.additive && model.arch.layers.some((layer) => layer.mlp))) parts.push(neuronsPart(panel));
  else if (model.additive) parts.push(attributionPart(panel));
  if (payload.lengths) parts.push(lengthsPart(panel));
  parts.push(attentionPart(panel));
  return parts;
}

// Compare the payload's reference logits with what this page computes, from tokens and (if there are tables) counts.
function selfTest(model, payload) {
  const { tests } = payload, outs = model.arch.n_out, wanted = decode(tests.logits.data, tests.logits.dtype);
  let low = Infinity, high = -Infinity, worst = 0, next = 0;
  for (const value of wanted) { low = Math.min(low, value); high = Math.max(high, value); }
  const spread = high - low || Math.abs(high) || 1;
  const compare = (found, start) => { for (let o = 0; o < outs; o++) worst = Math.max(worst, Math.abs(found[o] - wanted[start + o]) / spread || (Number.isFinite(found[o]) ? 0 : Infinity)); };
  for (const [number, tokens] of tests.tokens.entries()) {
    const places = tests.places[number], logits = !model.tables || tokens.length <= 64 ? forward(model, tokens).logits : null;
    for (const place of places) {
      if (logits) compare(logits.subarray(place * outs, (place + 1) * outs), next);
      if (model.tables) compare(countForward(model.tables, tokens[place], countsAt(model, tokens, place)).logits, next);
      next += outs;
    }
  }
  return { worst, ok: worst <= SELF_TEST && next === wanted.length };
}
