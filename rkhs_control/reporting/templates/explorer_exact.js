// Distances, verdicts and sentences exactly as Python has them: both use the same doubles, and no tolerance.

const bits = new DataView(new ArrayBuffer(8));

// The next double below: one operation is off by half a unit at most, so this is never above its exact result.
function down(x) {
  if (x === -Infinity || Number.isNaN(x)) return x;
  if (x === 0) return -Number.MIN_VALUE;
  bits.setFloat64(0, x);
  bits.setBigInt64(0, bits.getBigInt64(0) + (x > 0 ? -1n : 1n));
  return bits.getFloat64(0);
}

// Not above a - b; not negative exactly where a >= b.
function differenceDown(a, b) {
  return a === b ? 0 : down(a - b);
}

// A number as Python's repr writes it, without a point where it is whole.
function exact(x) {
  x += 0;
  const [mantissa, power] = x.toExponential().split("e");
  const e = Number(power);
  if (e >= -4 && e < 16) return String(x);
  return `${mantissa}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
}

// So many digits, as %g writes them.
function general(x, digits = 6) {
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  if (x === 0) return "0";
  const [mantissa, power] = x.toExponential(digits - 1).split("e");
  const e = Number(power), plain = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (e >= -4 && e < digits) return plain(x.toFixed(digits - 1 - e));
  return `${plain(mantissa)}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
}

// An end of an interval to six digits, never on its inner side: lower ends (side 0) not above, upper ends not below.
function outward(x, side) {
  if (!Number.isFinite(x) || x === 0) return general(x);
  const unit = 10 ** (Number(x.toExponential(5).split("e")[1]) - 5), isRight = (t) => (side ? Number(t) >= x : Number(t) <= x);
  const near = general(x), next = general(Number(near) + (side ? unit : -unit));
  return isRight(near) ? near : isRight(next) ? next : exact(x);
}

// To three digits, never above the number. A hundred digits of a double are enough to see on which side it is.
function roundedDown(x) {
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  if (x === 0) return "0.00";
  let [digits, power] = Math.abs(x).toExponential(99).replace(".", "").split("e");
  let head = Number(digits.slice(0, 3)), e = Number(power);
  if (x < 0 && /[1-9]/.test(digits.slice(3))) head += 1;
  if (head === 1000) [head, e] = [100, e + 1];
  const text = String(head), sign = x < 0 ? "-" : "";
  if (e < -4 || e >= 3) {
    return `${sign}${text[0]}.${text.slice(1)}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
  }
  if (e < 0) return `${sign}0.${"0".repeat(-e - 1)}${text}`;
  return sign + (e === 2 ? text : `${text.slice(0, e + 1)}.${text.slice(e + 1)}`);
}

// A distance with its sign, rounded down.
function marginText(margin) {
  if (margin === Infinity) return "no limits";
  return margin < 0 ? roundedDown(margin) : `+${roundedDown(margin)}`;
}

// How far outside a whole box is, claiming no more than was proved.
function outsideText(hope) {
  return `-${roundedDown(-hope)}`;
}

// The limits of the states as inequalities: rows that stay, then uppers, then lowers.
function constraintsOf(limits, states) {
  const rows = limits.rows.map((row, c) => ({ name: `constraint ${c}`, row: c }));
  const uppers = limits.states.upper.map((end, i) => ({ name: `${states[i].name} <= ${exact(end)}`, i, end, side: 1 }));
  const lowers = limits.states.lower.map((end, i) => ({ name: `${states[i].name} >= ${exact(end)}`, i, end, side: 0 }));
  return [...rows, ...[...uppers, ...lowers].filter((c) => Number.isFinite(c.end))];
}

// How far inside a constraint the worst point of a box is, rounded down, and the best one, rounded up.
function distances(constraint, boxes, n) {
  if (constraint.row !== undefined) return [boxes.margins[n][constraint.row], boxes.hopes[n][constraint.row]];
  const { i, end } = constraint, low = boxes.lower[n][i], high = boxes.upper[n][i];
  if (constraint.side) return [differenceDown(end, high), -differenceDown(low, end)];
  return [differenceDown(-end, -low), -differenceDown(-high, -end)];
}

// Whether a - b lies outside [low, high]: the rounded difference decides or, where it equals an end, its error does.
function changeLeaves(a, b, low, high) {
  const total = a - b, part = total - a, error = a - (total - part) + (-b - part);
  return total < low || total > high || (total === low && error < 0) || (total === high && error > 0);
}

// The first input, or change of one, outside its limits.
function inputViolation(plan, limits, inputs) {
  const said = (what, i, n, value, box) =>
    `the ${what}input ${inputs[i].name} at step ${n} is ${general(value)}, ` +
    `outside [${general(box.lower[i])}, ${general(box.upper[i])}]`;
  for (const [n, row] of plan.inputs.entries()) {
    for (const [i, u] of row.entries()) {
      if (u < limits.inputs.lower[i] || u > limits.inputs.upper[i]) return said("", i, n, u, limits.inputs);
    }
  }
  for (const [n, row] of plan.inputs.slice(1).entries()) {
    for (const [i, u] of row.entries()) {
      const before = plan.inputs[n][i];
      if (changeLeaves(u, before, limits.rates.lower[i], limits.rates.upper[i])) {
        return said("change of ", i, n, u - before, limits.rates);
      }
    }
  }
  return null;
}

function smallest(values) {
  let at = 0;
  values.forEach((value, k) => { if (value < values[at]) at = k; });
  return at;
}

// The first step (from 1) with a negative distance, and its worst constraint.
function firstOf(table, names) {
  const n = table.findIndex((row) => row.some((distance) => distance < 0));
  return n < 0 ? null : { step: n + 1, name: names[smallest(table[n])] };
}

// Verdict, distances and sentence for one plan, its boxes under some factors, and limits.
function judge(plan, boxes, limits, about) {
  const constraints = constraintsOf(limits, about.states), names = constraints.map((c) => c.name);
  const pairs = boxes.lower.map((_, n) => constraints.map((c) => distances(c, boxes, n)));
  const margins = pairs.map((row) => row.map((pair) => pair[0])), hopes = pairs.map((row) => row.map((pair) => pair[1]));
  const violation = inputViolation(plan, limits, about.inputs);
  const isOutside = hopes.some((row) => row.some((hope) => hope < 0));
  const isInside = margins.every((row) => row.every((margin) => margin >= 0));
  let verdict = "UNDECIDED";
  if (violation !== null || (plan.isCertain && isOutside)) verdict = "REFUTED";
  else if (plan.isCertain && isInside) verdict = "CERTIFIED";
  const startsInside = constraints.every((c) => distances(c, boxes.start, 0)[0] >= 0);
  const found = { verdict, violation, constraints, names, margins, hopes, startsInside };
  found.margin = Math.min(...margins.flat());
  found.firstFailure = firstOf(margins, names);
  found.firstViolation = firstOf(hopes, names);
  return { ...found, finding: finding(found, plan) };
}

function finding(found, plan) {
  if (found.violation !== null) return `${found.verdict}: ${found.violation}`;
  const text = `${found.verdict}: ${where(found)}`;
  return plan.isCertain ? text : `${text}; bounds of ${plan.method} hold with a probability only and certify nothing`;
}

// By how much the nearest box is inside the limits or, if one is not, where.
function where(found) {
  if (!found.names.length) return "there is no limit of the states, so this promises nothing";
  if (!found.firstFailure) return `every box is inside the limits, the nearest by ${roundedDown(found.margin)}`;
  const isViolated = found.firstViolation !== null, table = isViolated ? found.hopes : found.margins;
  const { step, name } = isViolated ? found.firstViolation : found.firstFailure;
  const by = (distance) => (isViolated ? outsideText : marginText)(distance).replace(/^-/, "");
  const fails = isViolated ? "whole box breaks" : "box passes";
  const text = `at step ${step} the ${fails} ${name} by ${by(Math.min(...table[step - 1]))}`;
  const worst = smallest(table.map((row) => Math.min(...row)));
  if (worst + 1 === step) return text;
  const limit = found.names[smallest(table[worst])];
  return `${text} (worst at step ${worst + 1}: ${limit} by ${by(Math.min(...table[worst]))})`;
}
