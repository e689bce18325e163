// The table to memorize: every context as a cell, and the table's distribution next to the model's.

function tablePart(panel) {
  const { model, store, payload } = panel, { contexts, conditional } = payload.table, { vocabulary } = model.task;
  const outs = model.arch.n_out, goals = decode(conditional.data, conditional.dtype), index = new Map(contexts.map((context, i) => [context.join(), i]));
  const order = contexts[0].length, columns = Math.min(contexts.length, order > 1 ? vocabulary.length : Math.ceil(Math.sqrt(contexts.length * 2)));
  const rowOf = (tokens) => index.get(tokens.slice(-order).join());
  panel.target = (found) => { const row = rowOf(found.tokens); return row === undefined ? null : goals.subarray(row * outs, (row + 1) * outs); };
  const grid = el("div", { class: "live-table", role: "group", "aria-label": "Contexts", style: `grid-template-columns:repeat(${columns},minmax(12px,1fr))` }), words = el("p", { class: "live-note" });
  const name = (context) => context.map((token) => vocabulary[token]).join(" ");
  const cells = contexts.map((context) => el("button", { type: "button", tabindex: "-1", title: name(context), onclick: () => panel.load([...store.state.tokens.slice(0, -order), ...context]) }));
  grid.append(...cells);
  grid.addEventListener("keydown", (event) => { // Tab enters the grid once; the arrow keys move in it
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key], at = cells.indexOf(document.activeElement) + move;
    if (move && cells[at]) { event.preventDefault(); cells[at].focus(); }
  });
  const node = el("div", { class: "live-card live-wide" }, el("h4", {}, "All contexts"), grid, words);
  let known = "", losses = [];
  const update = (found) => {
    const state = JSON.stringify(store.state.off), here = rowOf(found.tokens);
    if (state !== known) {
      known = state;
      losses = contexts.map((context, i) => {
        const tokens = context.slice(), place = readPositions(model, tokens)[0];
        const logits = forward(model, tokens, editsOf(model, store.state, tokens)).logits.slice(place * outs, (place + 1) * outs), chances = softmax(logits), goal = goals.subarray(i * outs, (i + 1) * outs);
        let divergence = 0;
        goal.forEach((p, o) => { if (p > 0) divergence += p * Math.log(p / Math.max(chances[o], 1e-300)); });
        return { divergence, right: decide(model.task, logits) === argmax(goal) };
      });
    }
    cells.forEach((cell, i) => {
      const { divergence, right } = losses[i], words = `${name(contexts[i])}: ${right ? "right" : "wrong"}, ${number(divergence)} nats from the table`;
      cell.style.opacity = right ? 1 : 0.45 + 0.55 * Math.min(1, divergence);
      cell.dataset.right = String(right);
      cell.title = words;
      cell.setAttribute("aria-label", words);
      cell.setAttribute("aria-pressed", String(i === here));
      cell.tabIndex = i === (here === undefined ? 0 : here) ? 0 : -1;
    });
    const right = losses.filter((loss) => loss.right).length;
    setText(words, `${right} of ${contexts.length} contexts get the table's most likely next token. ${order > 1 ? `Rows: first token, columns: last. ` : ""}Click a cell to load its context.`);
  };
  return { node, update };
}
