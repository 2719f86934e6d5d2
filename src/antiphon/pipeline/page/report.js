"use strict";
// Draws the report's pictures. All that they show is in the page, in #data (pipeline/scenes.py makes it); times are
// seconds since the run began, or milliseconds where the name says so.

const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["#2f81f7", "#e8833a", "#2da44e", "#a371f7", "#d4a72c", "#e5534b"];
const NAMES_MIN = 70; // pixels, for the names on the left
const RIGHT = 14;
const LANE = 26;
const AXIS = 38;
const COLUMN = 4; // pixels that a column of a picture over time has at least
const TICK = 64; // pixels between the numbers along an axis, at least
const LINE = 13; // pixels, of text
const LETTER = 7.2; // pixels, as wide as one is at most in the mean

// ---- drawing

function draw(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

/** An empty picture in a figure, as wide as that. */
function canvas(id, height, words) {
  const figure = document.getElementById(id);
  const width = figure.clientWidth;
  figure.replaceChildren();
  const svg = draw(figure, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": words });
  return { svg, width, height };
}

/** Maps from..to onto low..high; `back` maps it back. */
function scale(from, to, low, high) {
  const factor = (high - low) / (to - from || 1);
  const forth = (value) => low + (value - from) * factor;
  forth.back = (at) => from + (at - low) / factor;
  return forth;
}

function ticks(from, to, most) {
  const rough = (to - from) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-6; at += step) found.push(at);
  return { at: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function axis(svg, x, from, to, bottom, unit) {
  const right = x(to);
  const { at, digits } = ticks(from, to, Math.max(2, (right - x(from)) / TICK));
  for (const each of at) {
    const tick = draw(svg, "g", { class: "tick" });
    draw(tick, "line", { x1: x(each), x2: x(each), y1: bottom, y2: bottom + 5 });
    draw(tick, "text", { x: x(each), y: bottom + 18, "text-anchor": "middle" }, each.toFixed(digits));
  }
  draw(svg, "line", { class: "base", x1: x(from), x2: right, y1: bottom, y2: bottom });
  draw(svg, "text", { x: right, y: bottom + 32, "text-anchor": "end", "fill-opacity": 0.7 }, unit);
}

/** The ticks of a logarithmic axis, at 1, 2 and 5 of each power of ten. */
function powers(low, high) {
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10)
    for (const each of [1, 2, 5]) if (each * power >= low && each * power <= high) found.push(each * power);
  return found;
}

function milliseconds(value) {
  return `${value >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3))} ms`;
}

/** How far from the left a picture begins that has the names of these groups' processes beside it. */
function leftOf(groups) {
  const longest = Math.max(0, ...groups.flatMap(([, processes]) => processes).map((process) => process.length));
  return Math.max(NAMES_MIN, LETTER * longest + 10);
}

/** Give every process of some groups a height, group under group. */
function lanes(groups, top) {
  const heights = new Map();
  const colours = new Map();
  let y = top;
  groups.forEach(([, processes], place) => {
    for (const process of processes) {
      y += LANE;
      heights.set(process, y);
      colours.set(process, COLOURS[place % COLOURS.length]);
    }
    y += 10;
  });
  return { heights, colours, bottom: y, left: leftOf(groups) };
}

function name(svg, text, left, y) {
  draw(svg, "text", { x: left - 8, y, "text-anchor": "end" }, text);
}

/** A drag along the picture chooses a span, two clicks choose all of it. */
function choosable(svg, x, low, high, choose, all) {
  const at = (event) => {
    const frame = svg.getBoundingClientRect();
    const place = ((event.clientX - frame.left) * svg.viewBox.baseVal.width) / frame.width;
    return Math.min(high, Math.max(low, place));
  };
  svg.addEventListener("pointerdown", (event) => {
    const begun = at(event);
    const box = draw(svg, "rect", { class: "chosen", x: begun, y: 0, width: 0, height: svg.viewBox.baseVal.height });
    const move = (moved) => {
      box.setAttribute("x", Math.min(begun, at(moved)));
      box.setAttribute("width", Math.abs(at(moved) - begun));
    };
    const end = (ended) => {
      for (const [kind, listener] of listeners) removeEventListener(kind, listener);
      box.remove();
      const [from, to] = [begun, at(ended)].sort((one, other) => one - other);
      if (ended.type === "pointerup" && to - from > 5) choose(x.back(from), x.back(to));
    };
    const listeners = [["pointermove", move], ["pointerup", end], ["pointercancel", end]];
    for (const [kind, listener] of listeners) addEventListener(kind, listener); // the pointer may leave the picture
  });
  svg.addEventListener("dblclick", all);
}

// ---- the span of time that is shown

let span = [0, data.seconds];
const SHORTEST = data.slice / 4;

function show(from, to) {
  const length = Math.min(data.seconds, Math.max(SHORTEST, to - from));
  const start = Math.min(Math.max(0, from), data.seconds - length);
  span = [start, start + length];
  drawSpan();
}

const showAll = () => show(0, data.seconds);

function zoom(how) {
  const [from, to] = span;
  const [middle, half] = [(from + to) / 2, (to - from) / 2];
  if (how === "in") show(middle - half / 2, middle + half / 2);
  else if (how === "out") show(middle - 2 * half, middle + 2 * half);
  else if (how === "left") show(from - half, to - half);
  else if (how === "right") show(from + half, to + half);
  else showAll();
}

function drawSpan() {
  const digits = Math.max(0, 2 - Math.floor(Math.log10(span[1] - span[0])));
  document.getElementById("span").textContent = `${span[0].toFixed(digits)} to ${span[1].toFixed(digits)} s`;
  drawTimeline();
  drawLatency();
  drawShares();
}

// ---- deliveries over time

/** How much lies in each column: slices of the run's time, as many together as make a column of some pixels. */
function columns(slice, x, pixels) {
  const together = Math.max(1, Math.ceil(pixels / (x(slice) - x(0))));
  const width = slice * together;
  return { width, of: (place) => Math.floor(place / together), start: (column) => column * width };
}

function drawTimeline() {
  const { heights, colours, bottom, left } = lanes(data.lanes, 4);
  const { svg, width } = canvas("timeline", bottom + AXIS, "Deliveries of each process over time");
  const x = scale(span[0], span[1], left, width - RIGHT);
  const column = columns(data.slice, x, COLUMN);
  const seen = new Map();
  let top = 1;
  for (const process of heights.keys()) {
    const counts = new Map();
    for (const [place, count] of data.deliveries[process] ?? []) {
      const at = column.of(place);
      if (column.start(at + 1) > span[0] && column.start(at) < span[1]) counts.set(at, (counts.get(at) ?? 0) + count);
    }
    top = Math.max(top, ...counts.values());
    seen.set(process, counts);
  }
  const inside = (at) => x(Math.min(span[1], Math.max(span[0], at)));
  for (const [process, y] of heights) {
    name(svg, process, left, y - 4);
    const area = [...seen.get(process)].map(([at, count]) => {
      const [from, to] = [inside(column.start(at)), inside(column.start(at + 1))];
      return `M${from} ${y}V${y - (LANE - 5) * Math.sqrt(count / top)}H${to}V${y}Z`; // roots: bursts leave the rest visible
    });
    draw(svg, "path", { d: area.join(""), fill: colours.get(process), "fill-opacity": 0.8 });
    draw(svg, "line", { class: "base", x1: left, x2: width - RIGHT, y1: y, y2: y });
  }
  drawMarks(svg, heights, inside, bottom);
  axis(svg, x, span[0], span[1], bottom, "seconds since the run began");
  choosable(svg, x, left, width - RIGHT, show, showAll);
}

const MARKS = {
  crash: ["✕", "var(--outage)", "down"],
  recover: ["▲", "var(--good)", "up again"],
  adopt: ["✚", "var(--normal)", "in the place of another"],
};

/** Where a process was down, where it was killed, where it came back, and where it took another's place. */
function drawMarks(svg, heights, inside, bottom) {
  for (const [process, from, to] of data.down) {
    const y = heights.get(process);
    if (y === undefined || to < span[0] || from > span[1]) continue;
    const size = { y: y - LANE + 5, height: LANE - 5 };
    draw(svg, "rect", { class: "down", x: inside(from), width: Math.max(1, inside(to) - inside(from)), ...size });
  }
  for (const [process, kind, at] of data.marks) {
    const y = heights.get(process);
    if (y === undefined || at < span[0] || at > span[1]) continue;
    const [sign, colour, words] = MARKS[kind];
    draw(svg, "line", { class: kind, x1: inside(at), x2: inside(at), y1: 0, y2: bottom });
    const mark = draw(svg, "text", { x: inside(at), y: y - 6, "text-anchor": "middle" }, sign);
    mark.style.fill = colour;
    mark.style.fontWeight = "bold";
    mark.dataset.tip = `${process} ${words} at ${at.toFixed(3)} s`;
  }
}

// ---- latency

const latency = data.latency;
const lower = (bin) => 2 ** (bin / latency.per_octave) / 1e6; // milliseconds
const shown = ([place]) => (place + 1) * latency.slice > span[0] && place * latency.slice < span[1];

function empty(id) {
  document.getElementById(id).textContent = "Nothing was delivered in this span.";
}

function drawLatency() {
  const cells = latency.cells.filter(shown);
  if (!cells.length) return empty("latency");
  const bins = cells.map(([, bin]) => bin);
  const [low, high] = [Math.min(...bins), Math.max(...bins) + 1];
  const height = 230;
  const { svg, width } = canvas("latency", height, "Latency over time");
  const [left, bottom] = [leftOf(data.lanes), height - AXIS]; // as in the picture above: one moment, one place
  const x = scale(span[0], span[1], left, width - RIGHT);
  const y = scale(low, high, bottom, 8);
  const column = columns(latency.slice, x, COLUMN);
  const counts = [new Map(), new Map()]; // in normal operation, and while a process was down
  for (const [place, bin, , , outage, count] of cells) {
    const key = column.of(place) * 4096 + bin;
    counts[outage].set(key, (counts[outage].get(key) ?? 0) + count);
  }
  const top = Math.max(...counts[0].values(), ...counts[1].values());
  const inside = (at) => x(Math.min(span[1], Math.max(span[0], at)));
  counts.forEach((of, outage) => {
    for (const [key, count] of of) {
      const [at, bin] = [Math.floor(key / 4096), key % 4096];
      const [from, to] = [inside(column.start(at)), inside(column.start(at + 1))];
      const cell = { x: from, y: y(bin + 1), width: Math.max(1, to - from), height: y(bin) - y(bin + 1) + 0.3 };
      const tip = `${count.toLocaleString("en")} at ${column.start(at).toFixed(2)} s: ${milliseconds(lower(bin))}`;
      const fill = `var(--${outage ? "outage" : "normal"})`;
      draw(svg, "rect", { ...cell, fill, "fill-opacity": 0.25 + 0.75 * Math.sqrt(count / top), "data-tip": tip });
    }
  });
  let above = Infinity;
  for (const each of powers(lower(low), lower(high))) {
    const at = y(Math.log2(each * 1e6) * latency.per_octave);
    const tick = draw(svg, "g", { class: "tick" });
    draw(tick, "line", { x1: left - 5, x2: left, y1: at, y2: at });
    if (above - at < LINE) continue;
    above = at;
    draw(tick, "text", { x: left - 8, y: at + 4, "text-anchor": "end" }, milliseconds(each));
  }
  axis(svg, x, span[0], span[1], bottom, "seconds since the run began");
  choosable(svg, x, left, width - RIGHT, show, showAll);
}

/** The largest latency in the first bin up to which a share of all lies: one that occurred. */
function quantile(bins, share) {
  const wanted = share * [...bins.values()].reduce((sum, { count }) => sum + count, 0);
  let below = 0;
  for (const bin of [...bins.keys()].sort((one, other) => one - other)) {
    below += bins.get(bin).count;
    if (below >= wanted) return bins.get(bin).top;
  }
  return lower(0);
}

/** Where half of all lies and where 99 % do, each with its words on the side on which there is room for them. */
function drawQuantiles(svg, counts, x, { left, right, foot, head }) {
  const found = [[0.5, "p50", "end"], [0.99, "p99", "start"]].map(([share, label, wished]) => {
    const value = quantile(counts, share);
    const at = x(Math.log2(value * 1e6) * latency.per_octave);
    draw(svg, "line", { class: "quantile", x1: at, x2: at, y1: foot, y2: head });
    const words = `${label} ${milliseconds(value)}`;
    const fits = { start: right - at, end: at - left };
    const other = wished === "start" ? "end" : "start";
    return { at, words, side: fits[wished] > LETTER * words.length ? wished : other };
  });
  let taken = -Infinity; // up to where the words before it stand
  for (const { at, words, side } of found) {
    const room = LETTER * words.length;
    const from = side === "start" ? at + 4 : at - 4 - room;
    const y = from < taken ? head - 4 : head + 8; // one above the other where they would meet
    taken = from + room;
    draw(svg, "text", { class: "over", x: side === "start" ? at + 4 : at - 4, y, "text-anchor": side }, words);
  }
}

function drawShares() {
  const rows = new Map(); // by their names: latency bin to how many, and the largest of them
  const cells = latency.cells.filter(shown).sort((one, other) => one[4] - other[4] || one[3] - other[3]);
  if (!cells.length) return empty("shares");
  for (const [, bin, top, groups, outage, count] of cells) {
    const row = outage ? "outage" : `${groups} group${groups === 1 ? "" : "s"}`;
    if (!rows.has(row)) rows.set(row, new Map());
    const before = rows.get(row).get(bin) ?? { count: 0, top: 0 };
    rows.get(row).set(bin, { count: before.count + count, top: Math.max(before.top, top) });
  }
  const bins = cells.map(([, bin]) => bin);
  const [low, high] = [Math.min(...bins) - 1, Math.max(...bins) + 2];
  const [ridge, wordy] = [76, 36]; // of each row, and what of it is for words
  const bottom = 8 + ridge * rows.size;
  const { svg, width } = canvas("shares", bottom + AXIS, "How latencies are distributed");
  const left = leftOf(data.lanes);
  const x = scale(low, high, left, width - RIGHT);
  let y = 8;
  for (const [row, counts] of rows) {
    y += ridge;
    const top = Math.max(...[...counts.values()].map(({ count }) => count));
    const area = [...counts].map(
      ([bin, { count }]) => `M${x(bin)} ${y}V${y - (ridge - wordy) * (count / top)}H${x(bin + 1)}V${y}Z`,
    );
    const fill = `var(--${row === "outage" ? "outage" : "normal"})`; // as in the picture above
    draw(svg, "path", { d: area.join(""), fill, "fill-opacity": 0.85 });
    draw(svg, "line", { class: "base", x1: left, x2: width - RIGHT, y1: y, y2: y });
    name(svg, row, left, y - 4);
    drawQuantiles(svg, counts, x, { left, right: width, foot: y, head: y - ridge + 16 });
  }
  let last = -Infinity;
  for (const each of powers(lower(low), lower(high))) {
    const at = x(Math.log2(each * 1e6) * latency.per_octave);
    const tick = draw(svg, "g", { class: "tick" });
    draw(tick, "line", { x1: at, x2: at, y1: bottom, y2: bottom + 5 });
    if (at - last < 55) continue;
    last = at;
    draw(tick, "text", { x: at, y: bottom + 18, "text-anchor": "middle" }, milliseconds(each));
  }
}

// ---- a few messages in space and time

const BESIDE = 11; // pixels from one delivery to that which stands beside it
let part = [0, mostlyOver(data.space_time)];

/** By when a few times the usual latency is over: what one who was down still has to do would leave no room for more. */
function mostlyOver({ deliveries, ms }) {
  const ends = deliveries.map(([, , when]) => when).sort((one, other) => one - other);
  return ends.length ? Math.min(ms, 3 * ends[Math.floor(ends.length / 2)]) || ms : ms;
}

/** Which colour is which message, as words that go on in the next line on a phone. */
function nameColours(messages, colour) {
  const legend = document.getElementById("messages");
  legend.replaceChildren();
  for (const message of messages) {
    const key = document.createElement("span");
    key.className = "key";
    key.style.background = colour.get(message);
    const word = document.createElement("span");
    word.append(key, message);
    legend.append(word);
  }
}

function drawSpaceTime() {
  const { groups, messages, multicasts, deliveries, frames, ms } = data.space_time;
  if (!messages.length) return void (document.getElementById("space-time").textContent = "There is no message.");
  const { heights, bottom, left } = lanes(groups, 4);
  const { svg, width } = canvas("space-time", bottom + AXIS, "Messages between processes over time");
  const right = width - RIGHT - BESIDE * (messages.length - 1);
  const x = scale(part[0], part[1], left, right);
  const colour = new Map(messages.map((message, place) => [message, COLOURS[place % COLOURS.length]]));
  nameColours(messages, colour);
  const clip = draw(draw(svg, "clipPath", { id: "within" }), "rect", { x: left - 9, y: 0, width: width - left, height: bottom });
  const drawn = draw(svg, "g", { "clip-path": `url(#${clip.parentNode.id})` });
  for (const [process, y] of heights) {
    name(svg, process, left, y + 4);
    draw(drawn, "line", { class: "base", x1: left, x2: width - RIGHT, y1: y, y2: y });
  }
  for (const [sender, receiver, message, sent, received] of frames) {
    const [x1, y1, x2, y2] = [x(sent), heights.get(sender), x(received), heights.get(receiver)];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [((x2 - x1) / length) * 7, ((y2 - y1) / length) * 7];
    const head = `M${x2} ${y2}L${x2 - dx - dy / 2.5} ${y2 - dy + dx / 2.5}L${x2 - dx + dy / 2.5} ${y2 - dy - dx / 2.5}Z`;
    const look = { stroke: colour.get(message), fill: colour.get(message), opacity: 0.6 };
    draw(drawn, "path", { d: `M${x1} ${y1}L${x2} ${y2}${head}`, ...look });
  }
  for (const [process, message, when] of multicasts) {
    const [cx, cy] = [x(when), heights.get(process)];
    const tip = `${process} multicasts ${message}, at ${when.toFixed(3)} ms`;
    const d = `M${cx} ${cy - 7}L${cx + 7} ${cy}L${cx} ${cy + 7}L${cx - 7} ${cy}Z`;
    draw(drawn, "path", { d, fill: colour.get(message), stroke: "var(--page)", "data-tip": tip });
  }
  const last = new Map();
  for (const [process, message, when] of deliveries) {
    const cx = Math.max(x(when), (last.get(process) ?? -Infinity) + BESIDE); // those at one moment stand side by side
    last.set(process, cx);
    const tip = `${process} delivers ${message}, at ${when.toFixed(3)} ms`;
    draw(drawn, "circle", { cx, cy: heights.get(process), r: 5.5, fill: colour.get(message), stroke: "var(--page)", "data-tip": tip });
  }
  axis(svg, x, part[0], part[1], bottom, "milliseconds since the first multicast");
  const choose = (from, to) => {
    part = [from, to];
    drawSpaceTime();
  };
  choosable(svg, x, left, right, choose, () => choose(0, ms));
}

// ---- words about what the pointer or the keyboard is at

const tip = document.getElementById("tip");

function explain(event) {
  const about = event.target.closest?.("[data-tip]");
  tip.hidden = !about;
  if (!about) return;
  tip.textContent = about.dataset.tip;
  const box = about.getBoundingClientRect();
  const left = Math.min(event.clientX ?? box.left, innerWidth - tip.offsetWidth - 8);
  const above = (event.clientY ?? box.top) - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 0 ? above : (event.clientY ?? box.bottom) + 16}px`;
}

document.addEventListener("pointerover", explain);
document.addEventListener("focusin", explain);
document.addEventListener("scroll", () => (tip.hidden = true), { passive: true });
document.querySelector("nav").addEventListener("click", (event) => {
  if (event.target.dataset.zoom) zoom(event.target.dataset.zoom);
});

function drawAll() {
  drawSpan();
  drawSpaceTime();
}

let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(drawAll);
});
drawAll();
