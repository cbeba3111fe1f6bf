// What is suggested for each value, and with which probability: by its name, its class in Wikidata,
// the model (fitted again as decisions are made), else by the sheet or the votes of its cluster.

const DROP = "drop";
const LIKELY = 9; // supercategories that a digit chooses
const model = data.model && readModel(data.model);

function readModel(facts) {
  const inputs = new Map(inputsOf(facts.values, facts).map((x, i) => [rows[facts.rows[i]], x]));
  return {
    ...facts, inputs,
    above: new Map(facts.above.map((found, i) => [rows[facts.rows[i]], found])), // nearest first
    texts: inputsOf(facts.texts, facts),
    examples: null, // of the last fit
    weights: Float64Array.from(new Float32Array(numbersOf(facts.weights))),
    advice: new Map(), // row -> what the model suggests
    seen: new Map(), // row -> what was measured before it was decided here, and whether it was right
    known: new Map(), // row -> its answer when the model was fitted last
    asked: 0, // fits that were asked for
  };
}

// The class that a row's decision puts it into; empty if it is open.
function answerOf(row) {
  const { decision, supercategory } = now(row);
  if (statusOf(row) === "conflict") return "";
  return decision === DROP ? DROP : ["keep", "move"].includes(decision) ? supercategory : "";
}

// The suggestion for a row: name, probability (0 if it is not known) and reason.
function adviceOf(row) {
  if (data.blind) return { name: "", probability: 0, reason: "" };
  const priors = model?.priors || {};
  const hinted = row.hint.split(": ").at(-1);
  if (namesake(row)) return { name: namesake(row), probability: priors.name || 0, reason: "its own name" };
  if (kindOf.has(hinted)) return { name: hinted, probability: priors.class || 0, reason: "its class in Wikidata" };
  const found = model?.advice.get(row);
  if (found) return kindOf.has(found.name) || found.name === DROP ? found : { name: "", probability: 0, reason: "" };
  if (row.suggestion) return { name: row.suggestion, probability: row.probability, reason: row.reason };
  return { name: voteOf(row), probability: 0, reason: "most decided ones of its cluster" };
}

// The supercategory suggested for a row; empty if it is none, or a drop.
const suggestionOf = (row) => (kindOf.has(adviceOf(row).name) ? adviceOf(row).name : "");

// "lake", or "lake 93 %" if the probability is known.
function adviceWord({ name, probability }) {
  return probability ? `${name} ${Math.floor(100 * probability)}\u00a0%` : name;
}

// All supercategories, the likeliest first; as the taxonomy has them without a model.
function likeliest(row) {
  const x = model?.inputs.get(row);
  const places = data.taxonomy.map((one) => one.supercategory);
  if (!x) return places;
  model.examples ??= knownExamples();
  const chances = chancesOf(x, model.weights, model.classes.length, model.examples, model.length);
  const chanceOf = new Map();
  model.classes.forEach((name, i) => chanceOf.set(name, (chanceOf.get(name) || 0) + chances[i])); // merged ones share a name
  return places.sort((one, other) => (chanceOf.get(other) || 0) - (chanceOf.get(one) || 0));
}

// The texts of the taxonomy and the decided values, for the model.
function knownExamples() {
  const decided = [...model.inputs.keys()].filter((row) => model.classes.includes(answerOf(row)));
  return {
    decided,
    inputs: [...model.texts, ...decided.map((row) => model.inputs.get(row))],
    answers: [...model.textClasses, ...decided.map((row) => model.classes.indexOf(answerOf(row)))],
    counts: [...model.texts.map(() => model.textCount), ...decided.map(() => 1)],
  };
}

// Fits the model again after decisions, and once at the start only asks it about each open value.
async function refit(fits = true) {
  if (!model || data.blind) return;
  const asked = (model.asked += 1);
  const breathe = breather(() => asked === model.asked);
  const classes = model.classes.length;
  const examples = knownExamples();
  const { decided } = examples;
  learn(decided);
  try {
    if (fits) {
      const { weights, dropPenalty } = model;
      model.weights = await fitWeights(examples, classes, dropPenalty, weights, breathe);
    }
    model.examples = examples;
    const calibration = calibrate([...model.seen.values()], model.calibration, model);
    const advice = new Map();
    for (const [row, x] of model.inputs) {
      if (answerOf(row)) continue;
      const found = predict(x, model.weights, classes, examples, model.length);
      const near = found.near.filter((e) => e >= model.texts.length).slice(0, 2)
        .map((e) => decided[e - model.texts.length]);
      const reason = reasonOf(row, near);
      const probability = trustOf(found.measured, calibration);
      const { best, measured } = found;
      advice.set(row, { name: model.classes[best], probability, reason, measured });
      await breathe();
    }
    const held = model.advice.get(selected);
    if (held && advice.has(selected)) advice.set(selected, held); // nothing moves under the fingers
    model.advice = advice;
    redrawAdvice();
    document.body.dataset.fits = String(Number(document.body.dataset.fits || 0) + 1);
  } catch (stopped) {
    if (stopped !== breather) throw stopped; // a newer fit took over
  }
}

// Why: the decided values that are most like the row, and the nearest ancestor shared with them.
function reasonOf(row, near) {
  if (!near.length) return "like the name and definition";
  const shared = model.above.get(row)?.find((one) => near.some((other) => model.above.get(other).includes(one)));
  const below = shared === undefined ? "" : `, below “${model.ancestors[shared]}”`;
  return `like ${near.map(({ label }) => `“${label}”`).join(" and ")}${below}`;
}

// Takes in whether the suggestions of values decided since the last fit were right.
function learn(decided) {
  const fresh = new Map(decided.map((row) => [row, answerOf(row)]));
  for (const [row, answer] of fresh) {
    if (!model.known.has(row)) judge(row, model.advice.get(row)?.name === answer);
  }
  model.known = fresh;
}

function judge(row, right) {
  const advice = model?.advice.get(row);
  if (advice && !namesake(row) && !model.seen.has(row)) {
    model.seen.set(row, { measured: advice.measured, right: Number(right) });
  }
}

function redrawAdvice() {
  redrawRows();
  live.refresh();
  const sure = sureRows().length;
  byId("sure-ones").hidden = !sure;
  byId("sure-count").textContent = count(sure);
}
