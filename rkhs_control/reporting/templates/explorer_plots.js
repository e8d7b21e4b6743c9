// Drawing: SVG elements, axes, the phase plane, and intervals over time.

const SVG = document.querySelector("svg").namespaceURI;

function element(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A name with its index set lower, if it is one like c_A; `sub` makes the index.
function nameParts(name, symbols, sub) {
  if (!symbols.includes(name)) return [name];
  const [letter, index] = name.split("_");
  return [letter, sub(index)];
}

function svgLabel(thing, symbols) {
  const parts = nameParts(thing.name, symbols, (index) => element("tspan", { dy: "3", "font-size": "9" }, index));
  const unit = thing.unit ? [element("tspan", parts.length > 1 ? { dy: "-3" } : {}, ` [${thing.unit}]`)] : [];
  return [...parts, ...unit];
}

// Numbers for people.
function shown(x, digits = 5) {
  return general(x, digits).replace("-", "−");
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) ?? power;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high && found.length < 50; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// The smallest interval around finite numbers, with some room; never empty.
function spread(values, room = 0.06) {
  const finite = values.filter(Number.isFinite);
  if (!finite.length) return [-1, 1];
  const low = Math.min(...finite), high = Math.max(...finite);
  const extra = (high - low) * room || Math.abs(high) * 0.1 || 1;
  return [low - extra, high + extra];
}

// Axes around a frame, and where numbers are in it. Everything drawn within is cut at the frame.
class Frame {
  constructor(svg, width, height, xs, ys, { left = 64, bottom = 40, top = 10, right = 12 } = {}) {
    Object.assign(this, { svg, xs, ys, left, top, right: width - right, bottom: height - bottom });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    const name = `cut-${svg.id}`, box = { x: left, y: top, width: this.right - left, height: this.bottom - top };
    this.axes = element("g", { class: "axes" });
    this.inside = element("g", { "clip-path": `url(#${name})` });
    const cut = element("clipPath", { id: name }, element("rect", box));
    svg.replaceChildren(cut, this.axes, this.inside, element("rect", { ...box, class: "frame" }));
  }

  x(value) { return this.left + ((value - this.xs[0]) / (this.xs[1] - this.xs[0])) * (this.right - this.left); }
  y(value) { return this.bottom - ((value - this.ys[0]) / (this.ys[1] - this.ys[0])) * (this.bottom - this.top); }
  clampX(value) { return Math.min(Math.max(this.x(value), this.left - 9), this.right + 9); }
  clampY(value) { return Math.min(Math.max(this.y(value), this.top - 9), this.bottom + 9); }

  add(tag, attributes, ...children) {
    const made = element(tag, attributes, ...children);
    this.inside.append(made);
    return made;
  }

  mark(xTicks, xText, yTicks) {
    for (const x of xTicks) {
      const at = this.x(x);
      this.axes.append(element("line", { x1: at, x2: at, y1: this.top, y2: this.bottom, class: "grid" }));
      this.axes.append(element("text", { x: at, y: this.bottom + 15, "text-anchor": "middle" }, xText(x)));
    }
    for (const y of yTicks) {
      const at = this.y(y);
      this.axes.append(element("line", { x1: this.left, x2: this.right, y1: at, y2: at, class: "grid" }));
      this.axes.append(element("text", { x: this.left - 6, y: at + 4, "text-anchor": "end" }, shown(y)));
    }
  }

  name(across, upwards) {
    const middle = (this.left + this.right) / 2, half = (this.top + this.bottom) / 2;
    this.axes.append(element("text", { x: middle, y: this.bottom + 33, "text-anchor": "middle", class: "name" }, ...across));
    const turn = `rotate(-90 13 ${half})`;
    this.axes.append(element("text", { x: 13, y: half, "text-anchor": "middle", transform: turn, class: "name" }, ...upwards));
  }

  // A box, between numbers that may be infinite.
  box([x0, y0], [x1, y1], attributes) {
    const left = this.clampX(x0), top = this.clampY(y1);
    const width = Math.max(this.clampX(x1) - left, 0.75), height = Math.max(this.clampY(y0) - top, 0.75);
    return this.add("rect", { x: left, y: top, width, height, ...attributes });
  }

  // What is beyond a limit, shaded, and the limit itself.
  limit(axis, side, end) {
    if (!Number.isFinite(end)) return;
    const at = axis === "x" ? this.clampX(end) : this.clampY(end);
    const beyond = axis === "x"
      ? { x: side ? at : this.left, y: this.top, width: Math.max(side ? this.right - at : at - this.left, 0), height: this.bottom - this.top }
      : { x: this.left, y: side ? this.top : at, width: this.right - this.left, height: Math.max(side ? at - this.top : this.bottom - at, 0) };
    this.add("rect", { ...beyond, class: "beyond" });
    const line = axis === "x" ? { x1: at, x2: at, y1: this.top, y2: this.bottom } : { x1: this.left, x2: this.right, y1: at, y2: at };
    this.add("line", { ...line, class: "limit" });
  }

  // The line a x + b y = c.
  row(a, b, c) {
    const [x0, x1] = this.xs, [y0, y1] = this.ys;
    const ends = Math.abs(b) * (y1 - y0) > Math.abs(a) * (x1 - x0)
      ? [[x0, (c - a * x0) / b], [x1, (c - a * x1) / b]]
      : [[(c - b * y0) / a, y0], [(c - b * y1) / a, y1]];
    const [[p, q], [r, s]] = ends;
    this.add("line", { x1: this.x(p), y1: this.y(q), x2: this.x(r), y2: this.y(s), class: "limit" });
  }
}

const tip = document.getElementById("tip");

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
  const below = event.clientY + 18;
  tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : event.clientY - tip.offsetHeight - 12}px`;
}

function hideTip() { tip.hidden = true; }

// Tell something about a thing that is pointed at; `entered` is called as well, and `chosen` when it is clicked.
function pointable(thing, text, entered = () => {}, chosen = () => {}) {
  thing.addEventListener("pointerenter", (event) => { showTip(event, text()); entered(event); });
  thing.addEventListener("pointermove", (event) => { showTip(event, text()); entered(event); });
  thing.addEventListener("pointerleave", hideTip);
  thing.addEventListener("click", chosen);
}

// Boxes in the plane of two states, where the plan starts, and the samples that carry the end in question.
function drawPhase(svg, view) {
  const { boxes, limits, data, plane: [i, j], step } = view, width = Math.max(svg.parentNode.clientWidth, 240);
  const pair = (x) => [x[i], x[j]], samples = view.samples.map((s) => ({ ...s, from: pair(s.start), to: pair(s.state) }));
  const range = (axis) => {
    const s = view.plane[axis], of = (list) => list.map((row) => row[s]);
    const near = [boxes.lower[step - 1][s], boxes.upper[step - 1][s], ...samples.map((sample) => sample.to[axis])];
    if (view.zoom === "step") return spread(near, 0.15);
    const plan = [...of(boxes.lower), ...of(boxes.upper), ...of(boxes.start.lower), ...of(boxes.start.upper)];
    if (view.zoom === "plan") return spread(plan);
    return spread([...plan, ...view.everLimits.lower[s], ...view.everLimits.upper[s]]);
  };
  const frame = new Frame(svg, width, Math.min(Math.max(width * 0.72, 270), 470), range(0), range(1));
  frame.mark(ticks(...frame.xs, width / 90), shown, ticks(...frame.ys, 6));
  frame.name(svgLabel(data.states[i], data.symbols), svgLabel(data.states[j], data.symbols));
  for (const [axis, s] of [["x", i], ["y", j]]) {
    frame.limit(axis, 0, limits.states.lower[s]);
    frame.limit(axis, 1, limits.states.upper[s]);
  }
  for (const row of limits.rows) {
    if (row.slice(0, -1).every((a, s) => a === 0 || s === i || s === j)) frame.row(row[i], row[j], row[row.length - 1]);
  }
  for (const sample of samples) drawSample(frame, sample);
  boxes.lower.forEach((low, n) => {
    const kind = view.boxKind(n), attributes = { class: `box ${kind}${n + 1 === step ? " chosen" : ""}`, "data-step": n + 1 };
    const rect = frame.box(pair(low), pair(boxes.upper[n]), attributes);
    pointable(rect, () => view.boxText(n), (event) => view.nearSide(n, event, frame), () => view.choose(n + 1));
  });
  frame.box(pair(boxes.start.lower[0]), pair(boxes.start.upper[0]), { class: "start-box" });
  const middle = pair(view.plan.x0);
  pointable(frame.add("circle", { cx: frame.x(middle[0]), cy: frame.y(middle[1]), r: 4, class: "start" }), view.startText);
  if (view.plan.truth) {
    const points = view.plan.truth.map((x) => `${frame.x(x[i])},${frame.y(x[j])}`).join(" ");
    frame.add("polyline", { points, class: "truth" });
  }
}

// A recorded run, from its start to the sample: wider where its weight is larger.
function drawSample(frame, sample) {
  const kind = sample.weight > 0 ? "plus" : "minus", [x, y] = [frame.x(sample.to[0]), frame.y(sample.to[1])];
  const ends = { x1: frame.x(sample.from[0]), y1: frame.y(sample.from[1]), x2: x, y2: y };
  frame.add("line", { ...ends, class: `way ${kind}`, "stroke-opacity": 0.2 + 0.6 * sample.share });
  const dot = frame.add("circle", { cx: x, cy: y, r: 2.5 + 3 * sample.share, class: `sample ${kind}`, "data-run": sample.run });
  pointable(dot, () => sample.text);
}

// One quantity over time: intervals at steps, or values held between them, with its limits.
function drawTime(svg, view, thing, series, limits) {
  const width = Math.max(svg.parentNode.clientWidth, 240), { data, step } = view, per = data.clock.perStep, n = series.steps;
  const frame = new Frame(svg, width, 190, [-0.4 * per, (n + 0.4) * per], spread(series.range(view.zoom, limits.ever)));
  const every = Math.ceil(n / 8), marks = Array.from({ length: n + 1 }, (_, k) => k).filter((k) => k % every === 0);
  frame.mark(marks.map((k) => k * per), (x) => shown(x), ticks(...frame.ys, 4));
  frame.name([data.clock.unit ? `time [${data.clock.unit}]` : "step"], svgLabel(thing, data.symbols));
  frame.limit("y", 0, limits.lower);
  frame.limit("y", 1, limits.upper);
  const at = frame.x((step - (series.isHeld ? 1 : 0)) * per), wide = frame.x(per) - frame.x(0);
  frame.add("rect", { x: series.isHeld ? at : at - wide / 2, y: frame.top, width: wide, height: frame.bottom - frame.top, class: "now" });
  series.draw(frame, wide);
  frame.inside.append(...Array.from({ length: n }, (_, k) => {
    const left = frame.x((series.isHeld ? k : k + 0.5) * per);
    const column = element("rect", { x: left, y: frame.top, width: wide, height: frame.bottom - frame.top, class: "catch" });
    pointable(column, () => series.text(k), (event) => series.entered?.(k, event, frame), () => view.choose(k + 1));
    return column;
  }));
}
