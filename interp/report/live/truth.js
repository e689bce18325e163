// The right answer, if the page knows it: from the task's rule, or from a list of inputs.
//
// A rule is plain data, [operation, argument, ...]; it gives an output index for a row of tokens and a place in it.

const RULES = {
  tokens: (env) => env.tokens,
  own: (env) => env.tokens[env.place],
  place: (env) => env.place,
  item: (env) => env.item,
  index: (env) => env.index,
  so_far: (env) => env.so_far,
  length: (env, list) => list.length,
  at: (env, list, index) => list[index < 0 ? list.length + index : index],
  only: (env, list, wanted) => list.filter((value) => wanted.includes(value)),
  list: (env, ...values) => values,
  count: (env, list, value) => list.filter((each) => each === value).length,
  "+": (env, a, b) => a + b,
  "-": (env, a, b) => a - b,
  "*": (env, a, b) => a * b,
  "//": (env, a, b) => Math.floor(a / b),
  "%": (env, a, b) => ((a % b) + b) % b,
  "<": (env, a, b) => a < b,
  "=": (env, a, b) => a === b,
  not: (env, a) => !a,
  and: (env, ...all) => all.every(Boolean),
};

function evaluate(rule, env) {
  if (!Array.isArray(rule)) return rule;
  const [operation, ...parts] = rule;
  if (operation === "if") return evaluate(evaluate(parts[0], env) ? parts[1] : parts[2], env);
  // Known counts need not be counted again.
  if (operation === "count" && env.counts && parts[0][0] === "tokens") return env.counts[evaluate(parts[1], env)];
  if (operation === "fold") {
    // ["fold", list, start, step]: `so_far` becomes step, item by item.
    let so_far = evaluate(parts[1], env);
    evaluate(parts[0], env).forEach((item, index) => { so_far = evaluate(parts[2], { ...env, so_far, item, index }); });
    return so_far;
  }
  return RULES[operation](env, ...parts.map((part) => evaluate(part, env)));
}

// Whether a rule depends only on the counts of single tokens.
function countsOnly(rule) {
  if (!Array.isArray(rule)) return true;
  if (rule[0] === "count" && rule[1][0] === "tokens") return Number.isInteger(rule[2]);
  return !["tokens", "own", "place"].includes(rule[0]) && rule.slice(1).every(countsOnly);
}

// (tokens, place) -> the right output index, or null if this page does not know it. Counts can replace the tokens if the
// rule depends only on them.
function makeTruth(payload) {
  const { rule, known, n_out } = payload.task, { only } = payload.frame;
  if (rule) {
    return (tokens, place, counts = null) => {
      if (only && !counts && tokens.length !== only) return null; // not an input of the task
      const answer = Number(evaluate(rule, { tokens, place, counts }));
      return Number.isInteger(answer) && answer >= 0 && answer < (payload.task.decision === "set" ? 2 ** n_out : Math.max(2, n_out)) ? answer : null;
    };
  }
  const list = new Map((known || []).map(([tokens, answers]) => [tokens.join(), answers]));
  return (tokens, place) => {
    const answers = list.get(tokens.join());
    if (!answers) return null;
    const found = answers.length === 1 ? answers[0] : answers[place];
    return found === undefined || found < 0 ? null : found;
  };
}

// An answer in words; a set (one bit for each output) as its members.
function answerWord(task, answer) {
  if (task.decision !== "set") return task.answers[answer];
  return `{${task.answers.filter((_, i) => Math.floor(answer / 2 ** i) % 2).join(", ")}}`;
}

// The output index that the logits of one position decide for.
function decide(task, logits) {
  if (task.decision === "sigmoid") return logits[0] > 0 ? 1 : 0;
  if (task.decision === "indicator") return Math.abs(logits[0]) <= task.tolerance ? 1 : 0;
  if (task.decision === "set") return Array.from(logits).reduce((sum, logit, i) => sum + (logit > 0 ? 2 ** i : 0), 0);
  const allowed = task.among;
  if (!allowed) return argmax(logits);
  return allowed.reduce((best, each) => (logits[each] > logits[best] ? each : best));
}
