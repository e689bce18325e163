// Numbers: tensors as flat double-precision arrays, read from base64 in the precision that the model has.

function decode(text, dtype) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
  if (dtype === "float64") return new Float64Array(bytes);
  if (dtype === "float32") return Float64Array.from(new Float32Array(bytes));
  const halves = new Uint16Array(bytes);
  if (dtype === "bfloat16") {
    // bfloat16 is the upper half of a float32.
    return Float64Array.from(new Float32Array(Uint32Array.from(halves, (bits) => (bits << 16) >>> 0).buffer));
  }
  if (dtype === "float16") return Float64Array.from(halves, half);
  throw new Error(`unknown number format ${dtype}`);
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// rows (n, a) times matrix (a, b) that begins at `offset` of its array, plus a bias (b) that begins at `biasOffset`.
function multiply(rows, n, a, matrix, b, offset = 0, bias = null, biasOffset = 0) {
  const out = new Float64Array(n * b);
  for (let i = 0; i < n; i++) {
    if (bias) for (let k = 0; k < b; k++) out[i * b + k] = bias[biasOffset + k];
    for (let j = 0; j < a; j++) {
      const value = rows[i * a + j];
      if (value === 0) continue;
      const from = offset + j * b, to = i * b;
      for (let k = 0; k < b; k++) out[to + k] += value * matrix[from + k];
    }
  }
  return out;
}

function sum(x, y) {
  return x.map((value, i) => value + y[i]);
}

// Rows of `width` numbers, each divided by its root mean square, times a gain.
function unitRows(rows, width, eps, gain) {
  const out = rows.slice();
  for (let start = 0; start < out.length; start += width) {
    let square = 0;
    for (let j = start; j < start + width; j++) square += out[j] * out[j] / width;
    for (let j = start; j < start + width; j++) out[j] *= gain[j - start] / Math.sqrt(square + eps);
  }
  return out;
}

// Queries or keys (n, heads, width), the first `dim` dimensions of each rotated by its position. The pairs are
// neighbors if `adjacent`, otherwise one dimension from each half.
function rotated(rows, n, heads, width, { dim, base, adjacent }) {
  const out = rows.slice();
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < dim / 2; j++) {
      const angle = i * base ** (-2 * j / dim), cos = Math.cos(angle), sin = Math.sin(angle);
      for (let h = 0; h < heads; h++) {
        const start = (i * heads + h) * width, one = start + (adjacent ? 2 * j : j), other = adjacent ? one + 1 : one + dim / 2;
        out[one] = rows[one] * cos - rows[other] * sin;
        out[other] = rows[other] * cos + rows[one] * sin;
      }
    }
  }
  return out;
}

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

// In place, over values[start .. start + n); rows with only -Infinity become zeros, because they are never read.
function softmaxAt(values, start, n) {
  let highest = -Infinity, total = 0;
  for (let i = start; i < start + n; i++) if (values[i] > highest) highest = values[i];
  for (let i = start; i < start + n; i++) {
    values[i] = highest === -Infinity ? 0 : Math.exp(values[i] - highest);
    total += values[i];
  }
  for (let i = start; i < start + n; i++) values[i] = total > 0 ? values[i] / total : 0;
}

function softmax(values) {
  const out = Float64Array.from(values);
  softmaxAt(out, 0, out.length);
  return out;
}

// erf to about 1e-15: its power series near zero, the continued fraction of erfc beyond.
function erf(x) {
  const z = Math.abs(x);
  if (z < 2.5) {
    let term = z, total = z;
    for (let n = 1; n < 80 && Math.abs(term) > 1e-17 * Math.abs(total); n++) {
      term *= -z * z / n;
      total += term / (2 * n + 1);
    }
    return Math.sign(x) * total * 2 / Math.sqrt(Math.PI);
  }
  let fraction = z;
  for (let n = 60; n > 0; n--) fraction = z + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-z * z) / fraction / Math.sqrt(Math.PI));
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => x * (1 + erf(x / Math.SQRT2)) / 2,
  gelu_new: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  silu: (x) => x / (1 + Math.exp(-x)),
};
