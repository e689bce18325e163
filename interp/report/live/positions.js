// Position codes as formulas of (i, n), by name.

const CODES = {
  first: (i) => [i === 1 ? 1 : 0],
  fraction: (i, n) => [i / n],
  parity: (i, n) => [i / n, 1 - 2 * (i % 2)],
  halves: (i, n) => [i, n - 1 - i, 2 * i <= n - 1 ? 1 : 0, 2 * i >= n - 1 ? 1 : 0],
  mirror: (i, n) => {
    const steps = Math.max(n - 1, 1);
    const strength = Math.sqrt(Math.log(16 * n) / 2) / Math.sin(Math.PI / (2 * steps));
    return [
      strength * Math.sin(Math.PI * (steps - 2 * i) / (2 * steps)),
      strength * Math.sin(Math.PI * Math.min(i, steps - i) / steps),
    ];
  },
};

// The code of position i in a row of n tokens, in d components.
function positionCode(positions, i, n, d) {
  const code = new Float64Array(d);
  if (positions.name === "sinusoidal") {
    for (let j = 0; j < d; j++) {
      const angle = i * Math.exp((j - (j % 2)) * (-Math.log(10000) / d));
      code[j] = j % 2 ? Math.cos(angle) : Math.sin(angle);
    }
    return code;
  }
  const doubled = positions.name.endsWith("-doubled");
  const values = CODES[doubled ? positions.name.slice(0, -8) : positions.name](i, n);
  values.forEach((value, j) => {
    code[j] = value;
    if (doubled) code[d / 2 + j] = -value;
  });
  return code;
}
