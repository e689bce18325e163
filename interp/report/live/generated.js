// A whole answer, generated token by token: the model reads its own earlier tokens.

// What the model generates after a row's question: {question, made, before (by the unchanged model), right (null if this
// page does not know it)}, all but the question as output indices; null if the row has no question.
function generated(model, payload, truth, state) {
  const { start, stop, length, tokens } = payload.generates, row = state.tokens, { arch } = model;
  const first = start.token === undefined ? start.position : row.indexOf(start.token) + 1;
  if (first < 1 || first > row.length) return null;
  const question = row.slice(0, first);
  const whole = (edited) => {
    const found = [], read = question.slice();
    while (found.length < length && !(arch.max_length && read.length > arch.max_length)) {
      const { logits } = forward(model, read, editsOf(model, edited, read));
      const said = decide(model.task, logits.slice((read.length - 1) * arch.n_out));
      found.push(said);
      if (said === stop) break;
      read.push(tokens[said]);
    }
    return found;
  };
  const made = whole(state), before = state.off.length ? whole({ ...state, off: [], ratios: null }) : made;
  return { question, made, before, right: right() };

  // The answer of a known input with this question; otherwise the right answers in the row itself, place by place.
  function right() {
    const listed = (payload.task.known || []).find(([each]) => question.every((token, i) => each[i] === token));
    const found = [], whose = listed ? listed[0] : row;
    for (let place = first - 1; found.length < length; place++) {
      const answer = place < whose.length ? truth(whose, place) : null;
      if (answer === null) break;
      found.push(answer);
      if (answer === stop) break;
    }
    return found.length ? found : null;
  }
}

function generatedPart(panel) {
  const { model, payload, truth, store } = panel, { vocabulary, answers } = model.task, { start } = payload.generates;
  const words = el("p", { class: "live-decision" }), list = el("div", { class: "live-positions", "aria-hidden": "true" });
  const node = el("div", { class: "live-card live-wide live-generated" }, el("h4", {}, "Generated answer"), words, list,
    el("p", { class: "live-note" }, "The model reads the tokens that it generated itself, not the answer in the input."));
  const said = (outputs) => (outputs.length ? written(answers, outputs) : "nothing");
  const update = () => {
    const found = generated(model, payload, truth, store.state);
    if (!found) {
      setText(words, `Nothing is generated: the input ends before ${start.token === undefined ? `position ${start.position}` : `a ${vocabulary[start.token]}`}.`);
      list.replaceChildren();
      words.dataset.right = "unknown";
      return;
    }
    const { question, made, before, right } = found, same = right !== null && made.join() === right.join();
    const judged = right === null ? ". This page does not know whether that is right." : same ? ", which is right." : `, which is wrong: right is ${said(right)}.`;
    const changed = made.join() === before.join() ? "" : ` The unchanged model generates ${said(before)}.`;
    setText(words, `After ${written(vocabulary, question)} the model generates ${said(made)}${judged}${changed}`);
    words.dataset.right = right === null ? "unknown" : String(same);
    const chip = (word, state) => el("span", { class: "live-made", "data-right": state }, word);
    list.replaceChildren(...question.map((token) => chip(vocabulary[token], "question")),
      ...made.map((output, i) => chip(answers[output], right === null ? "unknown" : String(output === right[i]))));
  };
  return { node, update };
}
