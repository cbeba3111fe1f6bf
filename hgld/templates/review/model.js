// The model of the decisions, as in hgld/review/suggestions.py: the same inputs, penalty and
// calibration, so the same answers. Long work pauses, so that keys are handled in between.

const SLICE = 8; // milliseconds of work between two pauses
const MEMORY = 10; // steps that L-BFGS remembers

const numbersOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;

// Rows of inputs from their int8 form, each with the constant at its end.
function inputsOf(text, { scale, constant }) {
  const whole = new Int8Array(numbersOf(text));
  const width = scale.length;
  return Array.from({ length: whole.length / width }, (_, row) =>
    Float64Array.from({ length: width + 1 }, (__, d) =>
      d < width ? whole[row * width + d] * scale[d] : constant));
}

// Waits when a slice of work is done; throws where the work is no longer wanted.
function breather(wanted = () => true) {
  let until = performance.now() + SLICE;
  return async () => {
    if (performance.now() < until) return;
    await new Promise((go) => setTimeout(go));
    if (!wanted()) throw breather;
    until = performance.now() + SLICE;
  };
}

// Probabilities of the classes by the regression alone.
function regress(x, weights, classes) {
  const scores = new Float64Array(classes);
  for (let d = 0; d < x.length; d += 1) {
    for (let c = 0; c < classes; c += 1) scores[c] += x[d] * weights[d * classes + c];
  }
  const top = scores.reduce((one, other) => Math.max(one, other));
  let sum = 0;
  for (let c = 0; c < classes; c += 1) sum += scores[c] = Math.exp(scores[c] - top);
  for (let c = 0; c < classes; c += 1) scores[c] /= sum;
  return scores;
}

// Penalised cross entropy of the weights; writes its gradient. Examples: their inputs, the answer
// (place of its class) and the count of decisions of each.
async function lossOf(weights, gradient, { inputs, answers, counts }, classes, dropPenalty, breathe) {
  let loss = 0;
  for (let i = 0; i < weights.length; i += 1) {
    const penalty = i % classes === classes - 1 ? dropPenalty : 1;
    gradient[i] = penalty * weights[i];
    loss += 0.5 * gradient[i] * weights[i];
  }
  for (let e = 0; e < inputs.length; e += 1) {
    const x = inputs[e];
    const off = regress(x, weights, classes);
    loss -= counts[e] * Math.log(Math.max(off[answers[e]], 1e-300));
    off[answers[e]] -= 1;
    for (let d = 0; d < x.length; d += 1) {
      const by = counts[e] * x[d];
      for (let c = 0; c < classes; c += 1) gradient[d * classes + c] += by * off[c];
    }
    await breathe();
  }
  return loss;
}

const dot = (one, other) => one.reduce((sum, value, i) => sum + value * other[i], 0);

// The weights of least loss, by L-BFGS from some that are near.
async function fitWeights(examples, classes, dropPenalty, start, breathe) {
  let weights = Float64Array.from(start);
  let gradient = new Float64Array(weights.length);
  const at = (place, slope) =>
    lossOf(place, slope, examples, classes, dropPenalty, breathe);
  let loss = await at(weights, gradient);
  const steps = [];
  for (let round = 0; round < 300 && gradient.some((slope) => Math.abs(slope) > 1e-2); round += 1) {
    const way = descent(gradient, steps);
    const slope = dot(way, gradient);
    let length = steps.length ? 1 : 1 / Math.max(1, Math.sqrt(dot(gradient, gradient)));
    let next, nextGradient, nextLoss;
    for (;;) {
      next = weights.map((weight, i) => weight + length * way[i]);
      nextGradient = new Float64Array(weights.length);
      nextLoss = await at(next, nextGradient);
      if (nextLoss <= loss + 1e-4 * length * slope || length < 1e-10) break;
      length /= 2;
    }
    const moved = next.map((weight, i) => weight - weights[i]);
    const bent = nextGradient.map((value, i) => value - gradient[i]);
    const curve = dot(moved, bent);
    if (curve > 1e-12) steps.push({ moved, bent, curve });
    if (steps.length > MEMORY) steps.shift();
    const gain = (loss - nextLoss) / Math.max(1, Math.abs(loss));
    [weights, gradient, loss] = [next, nextGradient, nextLoss];
    if (gain < 1e-9) break;
  }
  return weights;
}

// Where L-BFGS goes next: the gradient, corrected by the curvature of the last steps.
function descent(gradient, steps) {
  const way = gradient.map((value) => -value);
  const shares = [];
  for (const { moved, bent, curve } of steps.toReversed()) {
    const share = dot(moved, way) / curve;
    shares.push(share);
    for (let i = 0; i < way.length; i += 1) way[i] -= share * bent[i];
  }
  const last = steps.at(-1);
  const scale = last ? last.curve / dot(last.bent, last.bent) : 1;
  for (let i = 0; i < way.length; i += 1) way[i] *= scale;
  for (const { moved, bent, curve } of steps) {
    const share = shares.pop() - dot(bent, way) / curve;
    for (let i = 0; i < way.length; i += 1) way[i] += share * moved[i];
  }
  return way;
}

// Cosine similarity to each example; the constant at the end does not count.
const likenessTo = (x, inputs, length) => inputs.map((example) => {
  let like = 0;
  for (let d = 0; d < x.length - 1; d += 1) like += x[d] * example[d];
  return like / length ** 2;
});

// Probabilities of the classes: the mean of the regression and of votes of the examples.
function chancesOf(x, weights, classes, { inputs, answers }, length, likeness = likenessTo(x, inputs, length)) {
  const votes = new Float64Array(classes);
  likeness.forEach((like, e) => (votes[answers[e]] += Math.exp(length * like)));
  const all = votes.reduce((sum, vote) => sum + vote, 0);
  return regress(x, weights, classes).map((chance, c) => (chance + votes[c] / all) / 2);
}

// The best class, and what shows how far it can be trusted: log odds, drop, likeness to an example
// of it and of another class, 1. Also the examples of the class, those most like the value first.
function predict(x, weights, classes, examples, length) {
  const likeness = likenessTo(x, examples.inputs, length);
  const chances = chancesOf(x, weights, classes, examples, length, likeness);
  const best = chances.indexOf(chances.reduce((one, other) => Math.max(one, other)));
  const top = Math.min(Math.max(chances[best], 1e-4), 1 - 1e-4);
  let [same, other, near] = [0, 0, []];
  likeness.forEach((like, e) => {
    if (examples.answers[e] !== best) other = Math.max(other, like);
    else {
      same = Math.max(same, like);
      near.push(e);
    }
  });
  near.sort((one, two) => likeness[two] - likeness[one]);
  const drop = Number(best === classes - 1);
  return { best, near, measured: [Math.log(top / (1 - top)), drop, same, other, 1] };
}

const trustOf = (measured, calibration) => 1 / (1 + Math.exp(-dot(measured, calibration)));

// Logistic regression of "was right" on what was measured, held near the prior.
function calibrate(seen, prior, { priorPairs, calibrationSteps }) {
  const width = prior.length;
  const bend = prior.map((_, i) => prior.map((__, j) =>
    seen.reduce((sum, { measured }) => sum + measured[i] * measured[j] / 4, 0)
      + (i === j ? priorPairs : 0)));
  let guess = [...prior];
  for (let round = 0; round < (seen.length ? calibrationSteps : 0); round += 1) {
    const slope = guess.map((value, i) => priorPairs * (value - prior[i]));
    for (const { measured, right } of seen) {
      const off = trustOf(measured, guess) - right;
      for (let i = 0; i < width; i += 1) slope[i] += off * measured[i];
    }
    const step = solve(bend, slope);
    guess = guess.map((value, i) => value - step[i]);
  }
  return guess;
}

// Solution of a small positive definite system, by elimination.
function solve(matrix, right) {
  const rows = matrix.map((row, i) => [...row, right[i]]);
  for (let i = 0; i < rows.length; i += 1) {
    for (let j = 0; j < rows.length; j += 1) {
      if (i === j) continue;
      const share = rows[j][i] / rows[i][i];
      for (let k = i; k <= rows.length; k += 1) rows[j][k] -= share * rows[i][k];
    }
  }
  return rows.map((row, i) => row.at(-1) / row[i]);
}
