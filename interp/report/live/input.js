// The input: a text field, and one menu for each token.

const MENUS = 64;

// Token ids of a text. Spaces and commas separate words; in a word, the longest token is taken first.
function parseTokens(vocabulary, text) {
  const words = text.split(/[\s,]+/).filter(Boolean), ids = [];
  const ordered = vocabulary.map((word, id) => [word, id]).sort((a, b) => b[0].length - a[0].length);
  for (const word of words) {
    for (let rest = word; rest;) {
      const found = ordered.find(([token]) => token && rest.startsWith(token));
      if (!found) throw new Error(`"${rest[0]}" is not a token here: ${vocabulary.slice(0, 12).join(" ")}${vocabulary.length > 12 ? " \u2026" : ""}`);
      ids.push(found[1]);
      rest = rest.slice(found[0].length);
    }
  }
  return ids;
}

// Why these tokens cannot be run, or null.
function refuse(model, tokens) {
  const { arch, task } = model, n = tokens.length;
  if (tokens.some((token) => token >= task.vocabulary.length)) return "A token is not in the vocabulary.";
  if (arch.fixed_length && n !== arch.max_length) return `This model needs exactly ${arch.max_length} tokens, not ${n}.`;
  if (arch.max_length && n > arch.max_length) return `This model has ${arch.max_length} positions, but there are ${n} tokens.`;
  const cost = n * n * arch.layers.reduce((total, layer) => total + layer.n_heads * layer.d_head, 0);
  if (cost > 6e7) return `${n} tokens are too many for a page to answer at once.`;
  if (!n || !readPositions(model, tokens).every((place) => place >= 0) || !readPositions(model, tokens).length) {
    return `There is no ${typeof task.readout === "number" ? task.vocabulary[task.readout] : "token"}, where the answer is read.`;
  }
  return null;
}

function inputPart(panel) {
  const { model, store, payload } = panel, { vocabulary } = model.task, { prefix, suffix, alphabet } = payload.frame;
  const body = (tokens) => tokens.slice(prefix.length, tokens.length - suffix.length);
  const framed = (ids) => {
    const starts = prefix.length && prefix.every((id, i) => ids[i] === id), ends = suffix.length && suffix.every((id, i) => ids[ids.length - suffix.length + i] === id);
    return [...(starts ? [] : prefix), ...ids, ...(ends ? [] : suffix)];
  };
  const trouble = el("p", { class: "live-trouble", role: "alert" });
  const field = el("input", { type: "text", id: `${panel.key}-text`, autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const menus = el("div", { class: "live-menus", role: "group", "aria-label": "Tokens one by one" });
  const load = (tokens, kind = null) => {
    const reason = refuse(model, tokens);
    setText(trouble, reason || "");
    field.setAttribute("aria-invalid", reason ? "true" : "false");
    if (!reason) store.set({ tokens }, kind);
    return !reason;
  };
  panel.load = load;
  field.addEventListener("input", () => {
    try {
      load(framed(parseTokens(vocabulary, field.value)), "typing");
    } catch (error) { setText(trouble, error.message); field.setAttribute("aria-invalid", "true"); }
  });
  let next = 0;
  const buttons = [
    el("button", { type: "button", onclick: () => { next = (next + 1) % payload.examples.length; load(payload.examples[next]); } }, "Another example"),
  ];
  if (!model.arch.fixed_length) {
    const longer = () => { const inner = body(store.state.tokens); load([...prefix, ...inner, inner[inner.length - 1] ?? alphabet[0], ...suffix]); };
    const shorter = () => load([...prefix, ...body(store.state.tokens).slice(0, -1), ...suffix]);
    buttons.push(el("button", { type: "button", "aria-label": "One token less", onclick: shorter }, "\u2212"));
    buttons.push(el("button", { type: "button", "aria-label": "One token more", onclick: longer }, "+"));
  }
  const note = el("span", { class: "live-note" });
  const node = el("div", { class: "live-card live-input" }, el("label", { for: field.id }, "Input"),
    el("div", { class: "live-row" }, field, ...buttons), trouble, menus, note);
  const fixed = (id) => el("span", { class: "live-fixed" }, vocabulary[id]);
  let shown = -1;
  const update = () => {
    const { tokens } = store.state, inner = body(tokens);
    if (document.activeElement !== field) field.value = written(vocabulary, inner);
    if (document.activeElement !== field) { setText(trouble, ""); field.setAttribute("aria-invalid", "false"); }
    if (inner.length !== shown) {
      shown = inner.length;
      const menu = (_, i) => el("select", {
        "aria-label": `Token ${i + prefix.length}`,
        onchange: (event) => { const changed = store.state.tokens.slice(); changed[i + prefix.length] = +event.target.value; load(changed); },
      }, [...new Set([...alphabet, inner[i]])].map((id) => el("option", { value: id }, vocabulary[id])));
      menus.replaceChildren(...prefix.map(fixed), ...inner.slice(0, MENUS).map(menu), ...(inner.length > MENUS ? ["\u2026"] : []), ...suffix.map(fixed));
    }
    menus.querySelectorAll("select").forEach((select, i) => {
      if (![...select.options].some((option) => +option.value === inner[i])) select.append(el("option", { value: inner[i] }, vocabulary[inner[i]]));
      select.value = inner[i];
    });
    setText(note, `${tokens.length} token${tokens.length === 1 ? "" : "s"}`);
  };
  return { node, update };
}
