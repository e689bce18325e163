// Attention of every head of every layer as small pictures, each head and MLP with its switch; one head enlarged.

const NUMBERS = 12; // up to this many tokens the enlarged picture is a table of numbers

// The color of a weight: from the page's color (0) to the accent (1), or to the warning color for negative raw scores.
// In long rows, attention is spread over many keys, so weak weights get stronger colors.
function shades(highest, softly, n) {
  const power = n > NUMBERS ? 0.4 : 0.7, paper = rgb("paper"), accent = rgb("accent"), warning = rgb("warning");
  return (value) => {
    const part = Math.min(1, Math.abs(value) / (softly ? 1 : highest || 1)) ** power, end = value < 0 ? warning : accent;
    return [...paper.map((channel, i) => channel + (end[i] - channel) * part), 255];
  };
}

function attentionPart(panel) {
  const { model, store } = panel, { arch, task } = model, heads = [], switches = [];
  const grid = el("div", { class: "live-heads" });
  arch.layers.forEach((layer, index) => {
    for (let h = 0; h < layer.n_heads; h++) {
      const part = `${index}.${h}`, turn = partSwitch(panel, part), canvas = el("canvas", { role: "img" });
      const open = el("button", { type: "button", class: "live-picture", "aria-label": `Enlarge ${partName(part)}`, onclick: () => store.set({ head: part }) }, canvas);
      heads.push({ part, index, h, canvas, open, layer });
      switches.push(turn);
      grid.append(el("div", { class: "live-head" }, el("label", {}, turn.box, partName(part)), open));
    }
    if (layer.mlp) {
      const part = `${index}.mlp`, turn = partSwitch(panel, part);
      switches.push(turn);
      grid.append(el("div", { class: "live-head live-mlp" }, el("label", {}, turn.box, partName(part))));
    }
  });
  const title = el("h4"), now = view("This input"), held = view("Pinned input");
  const pair = el("div", { class: "live-pair" }, held.node, now.node);
  const pin = el("button", { type: "button", onclick: () => store.set({ pin: store.state.pin ? null : store.state.tokens }) });
  const pinned = pinnedRun(panel);
  const node = el("div", { class: "live-card live-wide" }, el("h4", {}, "Attention of each head"),
    el("p", { class: "live-note" }, "Rows attend to columns. Switches silence heads and MLPs. Click a picture to enlarge it. A pinned input stays next to later ones."), grid, title, pair);
  const all = (on) => el("button", { type: "button", onclick: () => store.set({ off: on ? [] : heads.map(({ part }) => part) }) }, on ? "All on" : "All heads off");
  grid.before(el("div", { class: "live-row" }, all(true), all(false), pin));

  const update = (found) => {
    const n = found.tokens.length, chosen = heads.find(({ part }) => part === store.state.head) || heads[0], beside = pinned();
    switches.forEach((turn) => turn.update());
    setText(pin, beside ? "Unpin" : "Pin this input");
    held.node.hidden = !beside;
    now.name.hidden = !beside;
    for (const head of heads) {
      const mine = patternOf(found.now, head, n), shade = shadeOf(mine, head, n);
      drawCells(head.canvas, n, n, (x, y) => shade(mine[y * n + x]));
      head.canvas.setAttribute("aria-label", `Attention of ${partName(head.part)}`);
      head.open.parentNode.classList.toggle("off", store.state.off.includes(head.part));
      head.open.setAttribute("aria-pressed", String(head === chosen));
    }
    setText(title, `${partName(chosen.part)}${store.state.off.includes(chosen.part) ? " (silenced)" : ""}`);
    enlarge(now, found, chosen);
    if (beside) enlarge(held, beside, chosen);
  };

  // The elements for one input's attention: a label, the picture, and a sentence.
  function view(name) {
    const large = el("div", { class: "live-scroll", tabindex: "0", role: "region", "aria-label": `${name}: the enlarged head` });
    const label = el("p", { class: "live-note" }), words = el("p", { class: "live-note" });
    const cue = el("p", { class: "cue", "aria-hidden": "true" }, "Scroll sideways for more \u2192");
    const node = el("div", {}, label, large, cue, words);
    const cut = () => {
      node.classList.toggle("is-long", large.scrollWidth > large.clientWidth + 2);
      node.classList.toggle("is-cut", large.scrollLeft + large.clientWidth < large.scrollWidth - 2);
    };
    large.addEventListener("scroll", cut, { passive: true });
    addEventListener("resize", cut);
    return { node, title: name, name: label, large, words, cut };
  }

  function patternOf(run, head, n) {
    return run.cache[`blocks.${head.index}.attn.hook_pattern`].data.subarray(head.h * n * n, (head.h + 1) * n * n);
  }

  function shadeOf(mine, head, n) {
    return shades(mine.reduce((most, value) => Math.max(most, Math.abs(value)), 0), head.layer.softmax, n);
  }

  function enlarge({ title: whose, name, large, words, cut }, found, head) {
    const n = found.tokens.length, word = (i) => task.vocabulary[found.tokens[i]];
    const mine = patternOf(found.now, head, n), before = patternOf(found.ghost, head, n), shade = shadeOf(mine, head, n);
    const shown = written(task.vocabulary, found.tokens.slice(0, 24)) + (n > 24 ? "\u2026" : ".");
    setText(name, `${whose}: ${shown} The model answers ${answerWord(model.task, lookedAt(model, found).answer)}${task.readout === "all" ? ` at position ${found.at}` : ""}.`);
    let most = 0;
    for (let j = 1; j < n; j++) if (Math.abs(mine[found.at * n + j]) > Math.abs(mine[found.at * n + most])) most = j;
    const gives = head.layer.softmax ? "attends most" : "gives the weight of largest absolute value";
    setText(words, `Position ${found.at} (${word(found.at)}) ${gives} to position ${most} (${word(most)}): ${number(mine[found.at * n + most])}.`);
    if (n > NUMBERS) {
      const canvas = el("canvas", { class: "live-large", role: "img", "aria-label": words.textContent });
      drawCells(canvas, n, n, (x, y) => shade(mine[y * n + x]));
      canvas.addEventListener("mousemove", (event) => {
        const [x, y] = [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight].map((part) => Math.min(n - 1, Math.max(0, Math.floor(part * n))));
        canvas.title = `${y} (${word(y)}) at ${x} (${word(x)}): ${number(mine[y * n + x])}`;
      });
      large.replaceChildren(canvas);
      cut();
      return;
    }
    const dark = (channels) => 0.3 * channels[0] + 0.59 * channels[1] + 0.11 * channels[2] < 140;
    const cell = (i, j) => {
      const channels = shade(mine[i * n + j]).map(Math.round), was = before[i * n + j];
      return el("td", {
        style: `background:rgb(${channels.slice(0, 3).join()});color:${dark(channels) ? "#fff" : "#111"}`,
        title: was === mine[i * n + j] ? false : `unchanged model: ${number(was)}`,
      }, short(mine[i * n + j]));
    };
    const places = [...Array(n).keys()];
    large.replaceChildren(el("table", { class: "live-matrix" },
      el("thead", {}, el("tr", {}, el("td"), places.map((j) => el("th", { scope: "col" }, word(j))))),
      el("tbody", {}, places.map((i) => el("tr", { class: i === found.at ? "live-here" : "" }, el("th", { scope: "row" }, word(i)), places.map((j) => cell(i, j)))))));
    cut();
  }
  return { node, update };
}

// Run the pinned input with the current edits, again only if something changes; null if no input is pinned.
function pinnedRun(panel) {
  let key = null, run = null;
  return () => {
    const { pin, off, at } = panel.store.state, next = JSON.stringify([pin, off, at]);
    if (next !== key) [key, run] = [next, pin && !refuse(panel.model, pin) ? runSequence(panel.model, panel.truth, { ...panel.store.state, tokens: pin }) : null];
    return run;
  };
}

// Bars around zero, one a line, largest first where there are many.
function barList(className, limit) {
  const table = el("table", { class: `live-bars ${className}` });
  const show = (rows, caption) => {
    const kept = rows.length > limit ? rows.slice().sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, limit) : rows;
    const numbers = rows.flatMap(([, value, ghost]) => [value, ghost]), reach = Math.max(...numbers.map(Math.abs), 1e-300);
    const [zero, unit] = numbers.some((value) => value < 0) ? [50, 50] : [0, 100];
    const span = (className, value) => el("span", { class: className, style: `left:${value < 0 ? zero + value / reach * unit : zero}%;width:${Math.abs(value) / reach * unit}%` });
    const columns = el("colgroup", {}, ["word", "track", "number"].map((kind) => el("col", { class: `live-${kind}-column` })));
    table.replaceChildren(el("caption", {}, caption + (rows.length > limit ? ` The ${limit} largest of ${rows.length}.` : "")), columns, el("tbody", {}, kept.map(([word, value, ghost]) => {
      const track = el("td", { class: "live-track" }, el("span", { class: "live-zero", style: `left:${zero}%` }), ghost === value ? "" : span("live-ghost", ghost), span("live-fill", value));
      return el("tr", {}, el("th", { scope: "row" }, word), track, el("td", { class: "number" }, number(value)));
    })));
  };
  return { table, show };
}

// Direct logit attribution at the position that is looked at.
function attributionPart(panel) {
  const { model } = panel, { answers } = model.task, list = barList("live-attribution", 24);
  const select = (label) => el("select", { "aria-label": label, onchange: () => panel.refresh() });
  const plus = select("Logit that is explained"), minus = select("Logit that is subtracted");
  const sets = model.task.decision === "set"; // each output is judged alone: nothing is subtracted
  plus.append(el("option", { value: "" }, sets ? "the least clear output" : "the answer"), ...answers.map((word, o) => el("option", { value: o }, word)));
  minus.append(el("option", { value: "" }, sets ? "nothing" : "the runner-up"), el("option", { value: "mean" }, "the mean"), ...answers.map((word, o) => el("option", { value: o }, word)));
  const node = el("div", { class: "live-card" }, el("h4", {}, "What each part adds to the answer"),
    answers.length > 1 && model.arch.n_out > 1 ? el("div", { class: "live-row" }, "Logit of", plus, "minus", minus) : "", list.table);
  const update = (found) => {
    const several = model.arch.n_out > 1, order = Array.from(found.logits.keys()).sort((x, y) => found.logits[y] - found.logits[x]);
    const clear = order.slice().sort((x, y) => Math.abs(found.logits[x]) - Math.abs(found.logits[y]))[0];
    const a = plus.value === "" ? (sets ? clear : several ? found.answer : 0) : +plus.value;
    const b = !several || minus.value === "mean" ? null : minus.value !== "" ? +minus.value : sets ? -1 : order.find((o) => o !== a);
    const now = attribution(model, found.now, found.at, a, b), before = attribution(model, found.ghost, found.at, a, b);
    const total = now.reduce((sumSoFar, [, value]) => sumSoFar + value, 0);
    list.show(now.map(([word, value], i) => [word, value, before[i][1]]),
      `${several ? `Logit of ${answers[a]} minus ${b === null ? "the mean" : b < 0 ? "nothing" : answers[b]}` : "The number s"}: ${number(total)} in all.${model.arch.final_norm ? " The scale of the final norm is kept fixed." : ""}`);
  };
  return { node, update };
}

// Hidden neurons of the position that is looked at: of a ReLU readout, else of the last MLP.
function neuronsPart(panel) {
  const { model } = panel, last = model.arch.layers.reduce((found, layer, index) => (layer.mlp ? index : found), -1);
  const name = model.arch.readout === "relu_mlp" ? "unembed.hook_post" : `blocks.${last}.mlp.hook_post`;
  const list = barList("live-neurons", 16);
  const node = el("div", { class: "live-card" }, el("h4", {}, "Hidden neurons"), list.table);
  const update = (found) => {
    const { shape: [, width], data } = found.now.cache[name], before = found.ghost.cache[name].data, start = found.at * width;
    const all = Array.from({ length: width }, (_, i) => [String(i), data[start + i], before[start + i]]);
    const rows = all.filter(([, value, ghost]) => value !== 0 || ghost !== 0);
    list.show(rows, `${rows.filter(([, value]) => value > 0).length} of ${width} are active at position ${found.at} (${name}).`);
  };
  return { node, update };
}
