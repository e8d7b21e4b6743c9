// A region for ever: its cells, coloured by the first input, and the plan of the one that is pointed at.

const COLOURS = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [188, 174, 108], [255, 234, 70]]; // after cividis

function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1), k = Math.min(Math.floor(at), COLOURS.length - 2);
  return `rgb(${COLOURS[k].map((low, c) => Math.round(low + (at - k) * (COLOURS[k + 1][c] - low))).join(" ")})`;
}

class RegionView {
  constructor(data, svg, text) {
    Object.assign(this, { data, svg, text, chosen: 0, isFlat: data.states.length < 2 });
    const { edges, cells } = data.region, flat = this.isFlat;
    this.cells = cells.map(([low, high, inputs, lower, upper]) => {
      const corner = (places) => [edges[0][places[0]], flat ? places === high ? 1 : 0 : edges[1][places[1]]];
      const point = (x, end) => [x[0], flat ? end : x[1]];
      const boxes = lower.map((x, n) => [point(x, 0), point(upper[n], 1)]);
      return { low: corner(low), high: corner(high), inputs, boxes, first: inputs[0][0] };
    });
    const firsts = this.cells.map((cell) => cell.first);
    this.range = [Math.min(...firsts), Math.max(...firsts)];
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("click", (event) => this.point(event));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  draw() {
    const { data, svg } = this, { limits } = data.region, width = Math.max(svg.parentNode.clientWidth, 240);
    const range = (j) => spread([limits.lower[j], limits.upper[j]], 0.03);
    const height = this.isFlat ? 150 : Math.min(Math.max(width * 0.72, 270), 520);
    const frame = new Frame(svg, width, height, range(0), this.isFlat ? [-0.1, 1.1] : range(1), { top: 36 });
    frame.mark(ticks(...frame.xs, width / 90), shown, this.isFlat ? [] : ticks(...frame.ys, 6));
    frame.name(svgLabel(data.states[0], data.symbols), this.isFlat ? [] : svgLabel(data.states[1], data.symbols));
    const [least, most] = this.range, share = (u) => (most > least ? (u - least) / (most - least) : 0.5);
    for (const cell of this.cells) frame.box(cell.low, cell.high, { class: "cell", fill: colour(share(cell.first)) });
    for (const side of [0, 1]) {
      const ends = side ? limits.upper : limits.lower;
      frame.limit("x", side, ends[0]);
      if (!this.isFlat) frame.limit("y", side, ends[1]);
    }
    this.legend(frame, least, most);
    this.layer = frame.add("g", {});
    this.frame = frame;
    this.choose(this.chosen);
  }

  legend(frame, least, most) {
    const width = Math.min(140, (frame.right - frame.left) / 3), left = frame.right - width, n = 28;
    for (let k = 0; k < n; k += 1) {
      frame.axes.append(element("rect", { x: left + (k * width) / n, y: 8, width: width / n + 0.5, height: 8, fill: colour(k / (n - 1)) }));
    }
    const texts = [[left, "start", shown(least, 4)], [frame.right, "end", shown(most, 4)]];
    for (const [x, anchor, text] of texts) frame.axes.append(element("text", { x, y: 29, "text-anchor": anchor }, text));
    const name = svgLabel(this.data.inputs[0], this.data.symbols);
    frame.axes.append(element("text", { x: left - 8, y: 17, "text-anchor": "end" }, "first input, ", ...name));
  }

  point(event) {
    const place = this.svg.getBoundingClientRect(), { frame } = this;
    const x = frame.xs[0] + ((event.clientX - place.left - frame.left) / (frame.right - frame.left)) * (frame.xs[1] - frame.xs[0]);
    const y = frame.ys[0] + ((frame.bottom - (event.clientY - place.top)) / (frame.bottom - frame.top)) * (frame.ys[1] - frame.ys[0]);
    const at = this.cells.findIndex(({ low, high }) => low[0] <= x && x <= high[0] && low[1] <= y && y <= high[1]);
    if (at >= 0 && at !== this.chosen) this.choose(at);
  }

  key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const middle = (cell) => [0, 1].map((j) => (cell.low[j] + cell.high[j]) / 2 / (this.frame[j ? "ys" : "xs"][1] - this.frame[j ? "ys" : "xs"][0]));
    const from = middle(this.cells[this.chosen]);
    let best = null, least = Infinity;
    this.cells.forEach((cell, k) => {
      const to = middle(cell), apart = [to[0] - from[0], to[1] - from[1]];
      const along = apart[0] * way[0] + apart[1] * way[1], aside = Math.abs(apart[0] * way[1]) + Math.abs(apart[1] * way[0]);
      if (along > 1e-9 && along + 3 * aside < least) [best, least] = [k, along + 3 * aside];
    });
    if (best !== null) this.choose(best);
  }

  choose(at) {
    this.chosen = at;
    const cell = this.cells[at], { frame, data } = this;
    this.layer.replaceChildren();
    const put = (low, high, kind) => this.layer.append(frame.box(low, high, { class: kind }));
    put(cell.low, cell.high, "cell chosen");
    for (const [low, high] of cell.boxes) put(low, high, "reached");
    put(...cell.boxes[cell.boxes.length - 1], "reached last");
    // Of the cell no more than is certified; of what is reached no less.
    const span = (low, high, out) => `[${outward(low, out ? 0 : 1)}, ${outward(high, out ? 1 : 0)}]`;
    const ends = (low, high, out) => data.states.slice(0, 2).map((s, j) => `${s.name} in ${span(low[j], high[j], out)}`).join(" and ");
    const inputs = data.inputs.map((u, k) => `${u.name} = ${cell.inputs.map((row) => shown(row[k])).join(", ")}`).join("; ");
    const [low, high] = cell.boxes[cell.boxes.length - 1], n = cell.inputs.length;
    this.text.textContent =
      `From every state with ${ends(cell.low, cell.high, false)}, apply ${inputs} for ${n} step${n > 1 ? "s" : ""}. ` +
      `After that ${ends(low, high, true)}, which is in the region again. Inputs are rounded here; region.plan(x) has all digits.`;
  }
}
