// The answer: logits as bars with the unchanged model's beside them, the decision in words, right or not.

const SHOWN = 12;

function answerPart(panel) {
  const { model, payload } = panel, { answers, decision } = model.task;
  const verdict = el("p", { class: "live-decision" }), proof = el("p", { class: "live-note live-steady" });
  const columns = ["word", "track", "number", "number", "number"].map((kind) => el("col", { class: `live-${kind}-column` }));
  const table = el("table", { class: "live-bars" });
  const node = el("div", { class: "live-card" }, el("h4", {}, "Answer"), verdict, table, proof);
  const rows = [];

  function scalar(found) {
    const s = found.logits[0], before = found.ghostLogits[0];
    const edge = decision === "indicator" ? `${answers[1]} if |s| is at most ${model.task.tolerance}` : `${answers[1]} if s > 0`;
    const reach = Math.max(Math.abs(s), Math.abs(before), 1e-300);
    bars([["s", s, before, null, null]], reach, `One number s decides: ${edge}.`);
  }

  function bars(list, reach, caption) {
    while (rows.length < list.length) {
      const row = { word: el("th", { scope: "row" }), bar: el("span", { class: "live-fill" }), ghost: el("span", { class: "live-ghost" }), value: el("td", { class: "number" }), chance: el("td", { class: "number" }), target: el("td", { class: "number" }) };
      row.node = el("tr", {}, row.word, el("td", { class: "live-track" }, el("span", { class: "live-zero" }), row.ghost, row.bar), row.value, row.chance, row.target);
      rows.push(row);
    }
    columns[3].hidden = list[0][3] === null;
    columns[4].hidden = list[0][4] === null || list[0][4] === undefined;
    table.replaceChildren(el("caption", {}, caption), el("colgroup", {}, columns), el("thead", {}, head), el("tbody", {}, rows.slice(0, list.length).map((row) => row.node)));
    list.forEach(([word, value, before, chance, target], i) => {
      const row = rows[i];
      setText(row.word, word);
      setText(row.value, number(value));
      setText(row.chance, chance === null ? "" : share(chance || 1e-300));
      setText(row.target, target === null || target === undefined ? "" : share(target));
      place(row.bar, value / reach);
      place(row.ghost, value === before ? 0 : before / reach);
      row.node.title = value === before ? "" : `unchanged model: ${number(before)}`;
    });
  }
  const head = el("tr", {});
  const place = (bar, part) => {
    const size = Math.min(Math.abs(part), 1) * 50 || 0;
    bar.style.cssText = `left:${part < 0 ? 50 - size : 50}%;width:${size}%`;
  };

  const update = (found) => {
    const goal = panel.target ? panel.target(found) : null;
    head.replaceChildren(...["", "", "logit", decision === "argmax" && found.logits.length > 1 ? "share" : "", goal ? "table" : ""].map((word) => el("th", { scope: "col", class: "number" }, word)));
    if (decision === "set") {
      const outs = Array.from(found.logits.keys()), reach = Math.max(...outs.flatMap((o) => [Math.abs(found.logits[o]), Math.abs(found.ghostLogits[o])]), 1e-300);
      bars(outs.map((o) => [answers[o], found.logits[o], found.ghostLogits[o], null, null]), reach, "In the set: every output above 0. Gray: the unchanged model.");
    } else if (decision !== "argmax" || found.logits.length === 1) scalar(found);
    else {
      const chances = softmax(found.logits), order = Array.from(found.logits.keys());
      // If there are many answers: the most likely ones of both models, in a fixed order.
      const rank = order.slice().sort((a, b) => Math.max(found.logits[b], found.ghostLogits[b]) - Math.max(found.logits[a], found.ghostLogits[a]));
      const kept = order.length > SHOWN ? new Set([...rank.slice(0, SHOWN - 1), ...(goal ? [argmax(goal)] : [])]) : new Set(order);
      const shown = order.filter((o) => kept.has(o)), reach = Math.max(...shown.flatMap((o) => [Math.abs(found.logits[o]), Math.abs(found.ghostLogits[o])]), 1e-300);
      bars(shown.map((o) => [answers[o], found.logits[o], found.ghostLogits[o], chances[o], goal && goal[o]]), reach,
        order.length > kept.size ? `The ${kept.size} most likely of ${order.length} answers.` : "Gray: the unchanged model.");
    }
    const words = sentence(found);
    setText(verdict, words);
    verdict.dataset.right = found.right === null ? "unknown" : String(found.right === found.answer);
    setText(proof, panel.store.edited ? "You have edited the model, so the statements and proofs of the report may no longer hold." : payload.proved ? domainNote(found) : "");
    panel.say(words);
  };

  // A sentence on whether this input is in the domain of the certificate.
  function domainNote({ tokens }) {
    const { status, domain, ranges, lengths } = payload.proved;
    const what = status === "certified" ? "All of these are proved right" : "The model is wrong on some of these";
    if (!ranges && !lengths) return `The inputs that were checked: ${domain}. ${what}. This page does not know whether this input is one of them.`;
    const inside = ranges ? ranges.every(([token, low, high]) => { const n = tokens.filter((each) => each === token).length; return n >= low && n <= high; })
      : tokens.length >= lengths[0] && tokens.length <= lengths[1] && framed(tokens);
    return `This input is ${inside ? "among" : "not among"} the inputs that were checked: ${domain}. ${what}${inside ? "" : "; nothing is claimed about this input"}.`;
  }

  // Whether a row has the fixed tokens at both ends, and tokens of the alphabet in between.
  function framed(tokens) {
    const { prefix, suffix, alphabet } = payload.frame, end = tokens.length - suffix.length;
    return tokens.every((token, i) => i < prefix.length ? token === prefix[i] : i < end ? alphabet.includes(token) : token === suffix[i - end]);
  }

  function sentence({ answer, before, right, where }) {
    const said = `${where ? `${where}: ` : ""}the model answers ${answerWord(model.task, answer)}`;
    const judged = right === null ? "" : right === answer ? ", which is right" : `, which is wrong: right is ${answerWord(model.task, right)}`;
    const changed = before === answer ? "" : ` The unchanged model answers ${answerWord(model.task, before)}.`;
    return `${said[0].toUpperCase()}${said.slice(1)}${judged}.${changed}${right === null ? " This page does not know whether that is right." : ""}`;
  }
  return { node, update };
}

// Answers at every position, with the right ones; a click selects a position.
function positionsPart(panel) {
  const { model, store } = panel, { vocabulary } = model.task, answers = (answer) => answerWord(model.task, answer);
  const list = el("div", { class: "live-positions", role: "group", "aria-label": "Answer at each position" });
  const node = el("div", { class: "live-card live-wide" }, el("h4", {}, "Answer at each position"), list,
    el("p", { class: "live-note" }, "Token, answer and, if it is wrong, the right answer. Click a position to select it."));
  const update = (found) => {
    while (list.children.length > found.places.length) list.lastChild.remove();
    while (list.children.length < found.places.length) {
      const i = list.children.length;
      list.append(el("button", { type: "button", onclick: () => store.set({ at: panel.found.places[i] }) }, el("b"), el("span"), el("i")));
    }
    found.answers.forEach(({ place, answer, right, before }, i) => {
      const button = list.children[i], [token, said, truth] = button.children, state = right === null ? "unknown" : String(right === answer);
      setText(token, vocabulary[found.tokens[place]]);
      setText(said, right === null ? "\u2013" : answers(answer));
      setText(truth, state === "false" ? `\u2260 ${answers(right)}` : before !== answer ? `was ${answers(before)}` : "\u00a0");
      button.dataset.right = state;
      button.setAttribute("aria-pressed", String(place === found.at));
      button.setAttribute("aria-label", `Position ${place}, token ${vocabulary[found.tokens[place]]}: ${right === null ? "no answer is read" : `${answers(answer)}, ${state === "true" ? "right" : `wrong, right is ${answers(right)}`}`}`);
    });
  };
  return { node, update };
}
