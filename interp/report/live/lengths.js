// Is the answer still right as the input grows? The string is repeated to every length, up to the first wrong answer.

const LONGEST = 400;

function lengthsPart(panel) {
  const { model, store, payload, truth } = panel, { prefix, suffix, alphabet } = payload.frame, { task } = model;
  let pattern = null, curve = [], working = 0;
  const inner = (tokens) => tokens.slice(prefix.length, tokens.length - suffix.length);
  const grown = (length) => [...prefix, ...Array.from({ length }, (_, i) => pattern[i % pattern.length]), ...suffix];
  let most = LONGEST;
  while (most > 8 && refuse(model, [...prefix, ...new Array(most).fill(alphabet[0]), ...suffix])) most -= most > 64 ? 16 : 1;
  const id = `${panel.key}-length`, slider = el("input", { type: "range", min: 1, max: most, id, oninput: (event) => { if (pattern) panel.load(grown(+event.target.value), "length"); } });
  const output = el("output", { for: id }), words = el("p", { class: "live-note" }), path = svg("path", { class: "live-curve" }), mark = el("i", { class: "live-mark" });
  const bad = svg("path", { class: "live-broken" });
  const node = el("div", { class: "live-card live-wide" }, el("h4", {}, "Longer and longer"),
    el("div", { class: "live-slider" }, el("label", { for: id }, "Length"), slider, output),
    el("div", { class: "live-mapbox" }, el("span", { class: "live-y" }, "margin"),
      el("div", { class: "live-frame" }, svg("svg", { viewBox: "0 0 600 110", preserveAspectRatio: "none", class: "live-lengths", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 600, y1: 55, y2: 55, class: "live-separator" }), bad, path), mark),
      el("span", { class: "live-ticks" }, el("span", {}, "0"), el("span", {}, "length"), el("span", {}, String(most)))), words);

  // The margin of the decision, negative if the answer is wrong.
  function measure(length) {
    const tokens = grown(length), place = readPositions(model, tokens)[0], outs = model.arch.n_out;
    const row = forward(model, tokens, editsOf(model, store.state, tokens)).logits.slice(place * outs, (place + 1) * outs);
    const right = truth(tokens, place), answer = decide(task, row);
    if (right === null) return { length, margin: NaN, wrong: false };
    let margin = Infinity;
    if (outs > 1) row.forEach((value, o) => { if (o !== right) margin = Math.min(margin, row[right] - value); });
    else margin = (task.decision === "indicator" ? task.tolerance - Math.abs(row[0]) : row[0]) * (right ? 1 : -1);
    return { length, margin, wrong: answer !== right };
  }

  // A few lengths per frame, so that the page stays responsive while the curve grows.
  function work(turn) {
    if (turn !== working) return;
    const until = performance.now() + 8, wanted = curve.wanted;
    while (curve.length < wanted.length && performance.now() < until) curve.push(measure(wanted[curve.length]));
    show();
    if (curve.length < wanted.length) requestAnimationFrame(() => work(turn));
  }

  function show() {
    const reach = Math.max(...curve.map(({ margin }) => Math.abs(margin)).filter(Number.isFinite), 1e-300);
    const x = (length) => 600 * length / most, y = (margin) => 55 - 50 * Math.sign(margin) * Math.sqrt(Math.abs(margin) / reach);
    const good = curve.filter(({ margin }) => Number.isFinite(margin));
    path.setAttribute("d", good.map(({ length, margin }, i) => `${i ? "L" : "M"}${x(length).toFixed(1)} ${y(margin).toFixed(1)}`).join(""));
    bad.setAttribute("d", curve.filter(({ wrong }) => wrong).map(({ length }) => `M${x(length).toFixed(1)} 0V110`).join(""));
    const now = inner(store.state.tokens).length, here = good.find(({ length }) => length === now);
    mark.style.cssText = `left:${Math.min(100, now / most * 100)}%;top:${here ? y(here.margin) / 1.1 : 50}%;opacity:${here ? 1 : 0.35}`;
    const first = curve.find(({ wrong }) => wrong), done = curve.length === curve.wanted.length;
    const text = task.vocabulary.length ? written(task.vocabulary, pattern) : "";
    const tail = curve.wanted.length < most ? ` (${curve.wanted.length} lengths up to ${most})` : ` (every length up to ${most})`;
    setText(words, first ? `Repeating ${text}: the first wrong answer is at length ${first.length}${tail}.` : `Repeating ${text}: right ${done ? "at all lengths tried" : "so far"}${tail}.`);
    if (!good.length) setText(words, "This page does not know the right answer at other lengths.");
  }

  let known = "";
  const update = (found) => {
    const body = inner(found.tokens);
    if (!pattern || body.some((token, i) => token !== pattern[i % pattern.length])) pattern = body.slice(0, 40);
    slider.value = body.length;
    setText(output, String(body.length));
    const state = JSON.stringify([pattern, store.state.off]);
    if (state === known) { show(); return; }
    known = state;
    const step = most > 64 ? 1.06 : 1.001, wanted = [];
    for (let length = 1; length <= most; length = Math.max(length + 1, Math.round(length * step))) wanted.push(length);
    curve = [];
    curve.wanted = wanted;
    working += 1;
    work(working);
  };
  return { node, update };
}
