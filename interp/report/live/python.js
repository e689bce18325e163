// Python code that reproduces what is shown.

function pythonOf(panel) {
  const { model, payload, store } = panel, { off, ratios } = store.state;
  const tokens = panel.sequence(), lines = ["import torch", "import interp", "", ...payload.load, `tokens = torch.tensor([${pythonList(tokens)}])`, "hooks = []"];
  const byLayer = new Map();
  for (const part of off) {
    const [layer, head] = part.split(".");
    if (head === "mlp") lines.push("", `def mlp_${layer}_off(out, hook):`, "    return torch.zeros_like(out)", "", `hooks.append(("blocks.${layer}.hook_mlp_out", mlp_${layer}_off))`);
    else byLayer.set(layer, [...(byLayer.get(layer) || []), +head]);
  }
  for (const [layer, heads] of byLayer) {
    lines.push("", `def heads_${layer}_off(z, hook):  # z: [rows, length, heads, d_head]`, "    z = z.clone()", `    z[:, :, [${heads.sort((a, b) => a - b).join(", ")}]] = 0`, "    return z", "", `hooks.append(("blocks.${layer}.attn.hook_z", heads_${layer}_off))`);
  }
  if (ratios) {
    const weights = ratioWeights(model, ratios), place = readPositions(model, tokens)[0];
    lines.push("", `weights = torch.tensor([${Array.from(weights).join(", ")}])[tokens]  # of each token, as set by hand`, `weights[:, ${place + 1}:] = 0`, "",
      "def set_attention(pattern, hook):  # pattern: [rows, heads, query, key]", "    pattern = pattern.clone()",
      `    pattern[:, :, ${place}] = (weights / weights.sum(1, keepdim=True).clamp_min(1e-300))[:, None].to(pattern)`, "    return pattern", "",
      `hooks.append(("blocks.${model.arch.layers.length - 1}.attn.hook_pattern", set_attention))`);
  }
  const at = panel.found ? panel.found.at : 0;
  return [...lines, "", "with torch.no_grad():", "    logits = model.run_with_hooks(tokens, fwd_hooks=hooks)", `print(logits[0, ${at}])`, ""].join("\n");
}

// A row of tokens as Python, runs of one token written as a product.
function pythonList(tokens) {
  const parts = [];
  for (let i = 0, j; i < tokens.length; i = j) {
    for (j = i; j < tokens.length && tokens[j] === tokens[i];) j++;
    if (j - i > 5) parts.push(`[${tokens[i]}] * ${j - i}`);
    else if (parts.length && !parts[parts.length - 1].includes("*")) parts.push(`${parts.pop().slice(0, -1)}, ${tokens.slice(i, j).join(", ")}]`);
    else parts.push(`[${tokens.slice(i, j).join(", ")}]`);
  }
  return parts.join(" + ");
}

function copyText(text, done) {
  const byHand = () => {
    const area = el("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    let worked = false;
    try { worked = document.execCommand("copy"); } catch { /* not allowed here */ }
    area.remove();
    done(worked);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => done(true), byHand);
  else byHand();
}
