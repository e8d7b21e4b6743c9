// The page: what is chosen, what follows from it, and how it is shown.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent, (_, value) => (value === "∞" ? Infinity : value === "-∞" ? -Infinity : value));
const asTheyAre = data.factors.indexOf(1);
const copyOf = (limits) => structuredClone(limits);
const state = {
  plan: 0, norm: asTheyAre, noise: asTheyAre, step: 1, end: { i: 0, side: 1 }, plane: [0, 1], zoom: "all",
  moved: data.limits.map(copyOf), unread: new Set(),
};
const PARTS = { states: "states", inputs: "inputs", rates: "changes of inputs" };
const LEGEND = "Dashed: limits. Dots: recorded samples that carry an end, blue with a positive weight, purple with a negative one.";
const plan = () => data.plans[state.plan];
const limits = () => state.moved[plan().limits];
const boxesOf = (norm, noise) => plan().boxes[norm][noise];
const boxes = () => boxesOf(state.norm, state.noise);
const stepText = (n) => (data.clock.unit ? `${n} (${shown(n * data.clock.perStep)} ${data.clock.unit})` : String(n));

// ---- limits that can be moved

function html(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const named = (name) => nameParts(name, data.symbols, (index) => html("sub", {}, index));

// All numbers that a slider for a limit should reach, and a step of one or two digits.
function reach(part, i) {
  const ever = data.limits[plan().limits][part];
  const inputs = plan().inputs.map((row) => row[i]), base = boxesOf(asTheyAre, asTheyAre);
  const changes = inputs.slice(1).map((u, n) => u - inputs[n]);
  const seen = { states: [...base.lower, ...base.upper].map((row) => row[i]), inputs, rates: changes }[part];
  const [low, high] = spread([...(seen ?? []), ever.lower[i], ever.upper[i]], 0.25);
  const step = ticks(0, high - low, 250)[1];
  return { min: Math.floor(low / step) * step, max: Math.ceil(high / step) * step, step };
}

function limitFields(part, things) {
  const fieldset = html("fieldset", {}, html("legend", {}, `Limits of ${PARTS[part]}`));
  things.forEach((thing, i) => {
    const row = html("div", { className: "limit-row" }, html("span", { className: "limit-name" }, ...named(thing.name), thing.unit ? ` [${thing.unit}]` : ""));
    for (const side of ["lower", "upper"]) row.append(limitField(part, i, side, thing));
    fieldset.append(row);
  });
  return fieldset;
}

function limitField(part, i, side, thing) {
  const range = reach(part, i), value = limits()[part][side][i], what = `${side} limit of ${part === "rates" ? "the change of " : ""}${thing.name}`;
  const id = `${part}-${i}-${side}`, text = Number.isFinite(value) ? exact(value) : "";
  const number = html("input", { type: "number", id, step: range.step, placeholder: "none" });
  const slider = html("input", { type: "range", id: `${id}-slider`, min: range.min, max: range.max, step: range.step });
  number.setAttribute("value", text); // arrow keys count from here
  number.setAttribute("aria-label", what);
  slider.setAttribute("aria-label", `${what}, slider`);
  slider.value = Number.isFinite(value) ? value : side === "lower" ? range.min : range.max;
  number.addEventListener("input", () => {
    if (number.validity.badInput) state.unread.add(what);
    else {
      state.unread.delete(what);
      const none = side === "lower" ? -Infinity : Infinity;
      limits()[part][side][i] = number.value === "" ? none : Number(number.value);
      slider.value = number.value === "" ? (side === "lower" ? range.min : range.max) : number.value;
    }
    render();
  });
  slider.addEventListener("input", () => {
    number.value = slider.value;
    state.unread.delete(what);
    limits()[part][side][i] = Number(slider.value);
    render();
  });
  return html("span", { className: "limit-end" }, html("span", { className: "side" }, side), number, slider);
}

function buildLimits() {
  state.unread.clear();
  const parts = [["states", data.states], ["inputs", data.inputs]];
  const { lower, upper } = data.limits[plan().limits].rates;
  if ([...lower, ...upper].some(Number.isFinite)) parts.push(["rates", data.inputs]);
  $("limits").replaceChildren(...parts.map(([part, things]) => limitFields(part, things)));
  const n = limits().rows.length;
  $("fixed-rows").textContent = n ? `The ${n} rows of the polytope count as well, and stay as they are.` : "";
}

// What is wrong with the limits themselves, if anything: then there is no answer.
function complaint() {
  if (state.unread.size) return `the ${[...state.unread][0]} is not a number`;
  for (const part of Object.keys(PARTS)) {
    const { lower, upper } = limits()[part], i = lower.findIndex((low, k) => !(low <= upper[k]));
    if (i >= 0) return `the lower limit of ${(part === "states" ? data.states : data.inputs)[i].name} is above the upper one`;
  }
  return "";
}

// ---- what is chosen besides

function fill(select, texts, chosen) {
  select.replaceChildren(...texts.map((text, k) => html("option", { value: k, textContent: text, selected: k === chosen })));
}

function fillFactors() {
  let refuted = "";
  for (const [which, other] of [["norm", "noise"], ["noise", "norm"]]) {
    fill($(which), data.factors.map((factor) => `× ${factor}`), state[which]);
    [...$(which).options].forEach((option, k) => {
      const { why } = which === "norm" ? boxesOf(k, state[other]) : boxesOf(state[other], k);
      option.disabled = why !== undefined;
      if (why) {
        option.textContent += ", no";
        refuted = why;
      }
    });
  }
  $("factor-note").textContent = refuted ? `Factors marked “no”: ${refuted}.` : "";
}

function choosePlan(k) {
  state.plan = k;
  if (boxes().why !== undefined) state.norm = state.noise = asTheyAre;
  state.step = Math.min(state.step, plan().inputs.length);
  $("step").max = plan().inputs.length;
  buildLimits();
  fillFactors();
  render();
}

function choose(step, end = state.end) {
  if (step === state.step && end.i === state.end.i && end.side === state.end.side) return;
  Object.assign(state, { step, end });
  render();
}

// ---- what follows

function render() {
  const wrong = complaint(), found = wrong ? null : judge(plan(), boxes(), limits(), data);
  $("head").className = found ? found.verdict.toLowerCase() : "plain";
  $("verdict").textContent = found ? found.verdict : "NO ANSWER";
  $("finding").textContent = found ? found.finding.slice(found.verdict.length + 2) : wrong;
  $("start-note").textContent = found && !found.startsInside
    ? "At the start it is outside the limits, or not certainly inside; the verdict is about the steps after that." : "";
  $("step").value = state.step;
  $("step-text").textContent = stepText(state.step);
  $("end").value = 2 * state.end.i + state.end.side;
  drawMargins(found);
  drawPlots(found);
}

function drawMargins(found) {
  const head = html("tr", {}, ...["limit", "at this step", "smallest", "at step"].map((text) => html("th", { textContent: text, scope: "col" })));
  const rows = (found?.names ?? []).map((name, c) => {
    const column = found.margins.map((row) => row[c]), at = smallest(column), now = column[state.step - 1];
    const cell = (value) => html("td", { textContent: marginText(value), title: exact(value), className: value < 0 ? "outside" : "" });
    return html("tr", {}, html("th", { textContent: name, scope: "row" }), cell(now), cell(column[at]), html("td", { textContent: at + 1 }));
  });
  $("margins").replaceChildren(html("thead", {}, head), html("tbody", {}, ...rows));
}

// The samples that carry the end in question, as far as they are known.
function samplesOf(n, { i, side }) {
  const entry = plan().ends[n][i][side], list = [];
  if (!entry || state.norm !== asTheyAre || state.noise !== asTheyAre) return { list, total: entry ? entry[0] : null };
  const largest = Math.abs(entry[2]);
  for (let k = 1; k < entry.length; k += 2) {
    const [run, weight] = entry.slice(k, k + 2), place = data.samples[n][run], half = data.states.length;
    const [start, recorded] = [place.slice(0, half), place.slice(half)];
    const text = `${data.kind} ${run}, weight ${shown(weight)}\nbegan at ${start.map((x) => shown(x)).join(", ")}\nrecorded ${recorded.map((x) => shown(x)).join(", ")}`;
    list.push({ run, weight, share: Math.abs(weight) / largest, start, state: recorded, text });
  }
  return { list, total: entry[0] };
}

function whyText({ list, total }) {
  const { i, side } = state.end, end = boxes()[side ? "upper" : "lower"][state.step - 1][i], { name, unit } = data.states[i];
  const text = `After step ${stepText(state.step)}, ${name} is at ${side ? "most" : "least"} ${outward(end, side)}${unit ? ` ${unit}` : ""}`;
  if (total === null) return `${text}. This method does not tell which samples carry it.`;
  if (!list.length && total) return `${text}. Which samples carry it is shown for bounds as they are, times 1.`;
  const more = total > list.length ? `; the ${list.length} with the largest weights are drawn` : "";
  return `${text}. ${total} recorded sample${total === 1 ? " carries" : "s carry"} this end${more}.`;
}

function drawSamples(list) {
  const words = [data.kind, "weight", ...data.states.map((s) => `${s.name} at first`), ...data.states.map((s) => `${s.name} recorded`)];
  const head = html("tr", {}, ...words.map((text) => html("th", { textContent: text, scope: "col" })));
  const rows = list.map((s) => html("tr", {}, ...[s.run, shown(s.weight), ...s.start.map((x) => shown(x)), ...s.state.map((x) => shown(x))].map((text) => html("td", { textContent: text }))));
  $("samples").replaceChildren(html("thead", {}, head), html("tbody", {}, ...rows));
}

function drawPlots(found) {
  const samples = samplesOf(state.step - 1, state.end), original = data.limits[plan().limits];
  const ever = (part, side) => limits()[part][side].map((end, i) => [end, original[part][side][i]]);
  const view = {
    data, plan: plan(), boxes: boxes(), limits: limits(), plane: state.plane, step: state.step, zoom: state.zoom, samples: samples.list,
    everLimits: { lower: ever("states", "lower"), upper: ever("states", "upper") },
    boxKind: (n) => (!found ? "" : found.hopes[n].some((d) => d < 0) ? "refuted" : found.margins[n].every((d) => d >= 0) ? "certified" : "undecided"),
    boxText: (n) => [`step ${stepText(n + 1)}`, ...data.states.map((s, i) => spanText(s, boxes().lower[n][i], boxes().upper[n][i]))].join("\n"),
    startText: () => ["start", ...data.states.map((s, i) => spanText(s, boxes().start.lower[0][i], boxes().start.upper[0][i]))].join("\n"),
    choose, nearSide,
  };
  $("why").textContent = whyText(samples);
  drawSamples(samples.list);
  if (data.states.length > 1) {
    drawPhase($("phase"), view);
    $("phase").setAttribute("aria-label", `Boxes of ${plan().inputs.length} steps in the plane of ${state.plane.map((i) => data.states[i].name).join(" and ")}; the table of distances has the numbers.`);
  }
  data.states.forEach((s, i) => drawTime($(`time-${i}`), view, s, intervals(view, i), endsOf("states", i, ever)));
  data.inputs.forEach((u, i) => drawTime($(`input-${i}`), view, u, heldInputs(i), endsOf("inputs", i, ever)));
}

const spanText = (s, low, high) => `${s.name}: ${outward(low, 0)} to ${outward(high, 1)}${s.unit ? ` ${s.unit}` : ""}`;

function endsOf(part, i, ever) {
  return { lower: limits()[part].lower[i], upper: limits()[part].upper[i], ever: [...ever(part, "lower")[i], ...ever(part, "upper")[i]] };
}

// Choose the side of the present box that the pointer is nearest to.
function nearSide(n, event, frame) {
  if (n + 1 !== state.step) return;
  const place = frame.svg.getBoundingClientRect(), [x, y] = [event.clientX - place.left, event.clientY - place.top];
  const sides = state.plane.flatMap((i, axis) => [0, 1].map((side) => {
    const end = boxes()[side ? "upper" : "lower"][n][i];
    return { i, side, apart: axis ? Math.abs(frame.y(end) - y) : Math.abs(frame.x(end) - x) };
  }));
  const { i, side } = sides.reduce((best, one) => (one.apart < best.apart ? one : best));
  choose(state.step, { i, side });
}

function intervals(view, i) {
  const { lower, upper, start } = boxes(), per = data.clock.perStep, ends = [start, { lower, upper }];
  const values = ends.flatMap((part) => [...part.lower, ...part.upper].map((row) => row[i]));
  const entered = (k, event, frame) => {
    const y = event.clientY - frame.svg.getBoundingClientRect().top;
    const side = Math.abs(frame.y(upper[k][i]) - y) < Math.abs(frame.y(lower[k][i]) - y) ? 1 : 0;
    if (k + 1 === state.step) choose(state.step, { i, side });
  };
  const draw = (frame, wide) => {
    const bar = Math.min(wide * 0.5, 22), place = (n, low, high, kind) => {
      const top = frame.clampY(high), height = Math.max(frame.clampY(low) - top, 1.5);
      frame.add("rect", { x: frame.x(n * per) - bar / 2, y: top, width: bar, height, class: kind });
    };
    place(0, start.lower[0][i], start.upper[0][i], "start-box filled");
    lower.forEach((low, n) => place(n + 1, low[i], upper[n][i], `box ${view.boxKind(n)}${n + 1 === state.step ? " chosen" : ""}`));
    if (plan().truth) frame.add("polyline", { points: plan().truth.map((x, n) => `${frame.x(n * per)},${frame.y(x[i])}`).join(" "), class: "truth" });
    if (state.end.i !== i) return;
    for (const sample of view.samples) {
      frame.add("circle", { cx: frame.x(state.step * per), cy: frame.y(sample.state[i]), r: 2.5, class: `sample ${sample.weight > 0 ? "plus" : "minus"}` });
    }
  };
  const now = [lower, upper].map((part) => part[state.step - 1][i]);
  const range = (zoom, ever) => ({ all: [...values, ...ever], plan: values, step: now })[zoom];
  return { steps: lower.length, range, draw, entered, text: (k) => view.boxText(k) };
}

function heldInputs(i) {
  const values = plan().inputs.map((row) => row[i]), per = data.clock.perStep, { name, unit } = data.inputs[i];
  const draw = (frame) => {
    const points = values.flatMap((u, n) => [`${frame.x(n * per)},${frame.y(u)}`, `${frame.x((n + 1) * per)},${frame.y(u)}`]);
    frame.add("polyline", { points: points.join(" "), class: "held" });
  };
  const range = (zoom, ever) => (zoom === "all" ? [...values, ...ever] : values);
  return { steps: values.length, range, draw, isHeld: true, text: (k) => `${name} = ${general(values[k], 7)}${unit ? ` ${unit}` : ""}\nfrom step ${k} to ${k + 1}` };
}

// ---- begin

function listen(id, event, act) {
  $(id).addEventListener(event, () => act(Number($(id).value)));
}

function beginPlans() {
  $("about-plans").hidden = false;
  fill($("plan"), data.plans.map((p) => p.name), 0);
  fill($("end"), data.states.flatMap((s) => [`the lower end of ${s.name}`, `the upper end of ${s.name}`]), 1);
  const names = data.states.map((s) => s.name);
  fill($("across"), names, 0);
  fill($("up"), names, 1);
  for (const label of document.querySelectorAll(".plane")) label.hidden = names.length < 3;
  if (names.length < 2) $("phase").parentNode.hidden = true;
  if (names.length < 2) $("phase-title").textContent = "What carries a bound";
  $("legend").textContent = LEGEND + (names.length < 2 ? "" : ` Lines: from where a ${data.kind} began to the sample. Ring: start.`) + (data.plans.some((p) => p.truth) ? " Thin line: the truth." : "");
  const charts = [...data.states.map((s, i) => [`time-${i}`, s]), ...data.inputs.map((u, i) => [`input-${i}`, u])];
  $("times").replaceChildren(...charts.map(([id, thing]) => html("div", { className: "canvas" }, element("svg", { id, role: "img", "aria-label": `${thing.name} over time` }))));
  listen("plan", "change", choosePlan);
  listen("step", "input", (n) => choose(n));
  listen("end", "change", (k) => choose(state.step, { i: Math.floor(k / 2), side: k % 2 }));
  for (const which of ["norm", "noise"]) listen(which, "change", (k) => { state[which] = k; fillFactors(); render(); });
  for (const [axis, id] of ["across", "up"].entries()) listen(id, "change", (k) => { state.plane[axis] = k; render(); });
  $("zoom").addEventListener("change", () => { state.zoom = $("zoom").value; render(); });
  $("reset").addEventListener("click", () => { state.moved[plan().limits] = copyOf(data.limits[plan().limits]); buildLimits(); render(); });
  choosePlan(0);
  addEventListener("resize", render);
}

function beginRegion() {
  $("about-region").hidden = false;
  const view = new RegionView(data, $("region"), $("cell")), { share, count, through } = data.region;
  const others = data.states.slice(2).map((s, k) => `${s.name} = ${shown(through[k])}`).join(", ");
  $("region-text").textContent =
    `${roundedDown(100 * share)} % of the limits, ${count} cells. From every state in them the limits can be kept for ever, as far as the assumptions hold.` +
    (others ? ` Drawn are the ${view.cells.length} cells that the plane ${others} meets.` : "");
  $("region").setAttribute("aria-label", "Cells of the region");
  view.draw();
  addEventListener("resize", () => view.draw());
}

if (data.plans.length) beginPlans();
if (data.region && data.region.cells.length) beginRegion();
$("notes").replaceChildren(...data.notes.map((text) => html("p", { textContent: text })), html("p", { textContent: `Written by rkhs_control ${data.version}. Nothing is loaded and nothing is sent.` }));
