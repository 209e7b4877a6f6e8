"use strict";
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const COLOURS = 10, MOST_ROWS = 10, PLAY_MS = 80;
const links = data.links.length, frames = data.frames;

/** An element; children are elements, or texts that stay texts whatever is in them. */
function make(kind, attributes, ...children) {
  return filled(document.createElement(kind), attributes, children);
}

/** The same in a picture. */
function draw(kind, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", kind), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A number in the unit that leaves digits before the point. */
function scaled(value, step, units) {
  let unit = 0;
  for (; value >= step && unit < units.length - 1; unit++) value /= step;
  return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${units[unit]}`;
}

const bytes = (count) => scaled(count, 1024, ["B", "KiB", "MiB", "GiB"]);
const time = (seconds) => scaled(seconds * 1e9, 1000, ["ns", "us", "ms", "s"]);
const share = (thousandths) => `${(thousandths / 10).toFixed(thousandths % 10 ? 1 : 0)} %`;
const greatest = (values) => values.reduce((most, value) => (value > most ? value : most), 0);
const range = (length) => Array.from({length}, (_, index) => index);

/** What links can be coloured by: a value for each link, frame after frame. */
const measures = [
  {id: "utilisation", name: "utilisation", values: data.utilisation, most: 1000, said: share},
  {id: "queue", name: "queue", values: data.queued, most: Math.max(1, greatest(data.queued)), said: bytes},
  {id: "pause", name: "PAUSE", values: data.paused, most: 1000, said: share},
].filter((one) => one.values);

let frame = 0, measure = measures[0], chosen = null, timer = null;

const valueOf = (one, at, link) => one.values[at * links + link];
/** The colour of a value: 0 for nothing, 9 for the most. */
const level = (one, value) => (value ? Math.min(COLOURS - 1, 1 + Math.floor((COLOURS - 1) * value / one.most)) : 0);

/** The path of one direction of a cable, beside the way back. */
function cable({from, to, bend}) {
  const [a, b] = [data.nodes[from], data.nodes[to]], [dx, dy] = [b.x - a.x, b.y - a.y], long = Math.hypot(dx, dy) || 1;
  const [ox, oy] = [-2.2 * dy / long, 2.2 * dx / long];
  return `M${a.x + ox} ${a.y + oy}Q${(a.x + b.x) / 2 + ox} ${(a.y + b.y) / 2 + oy - bend} ${b.x + ox} ${b.y + oy}`;
}

const cables = data.links.map((link, index) => {
  const path = draw("path", {d: cable(link)}, draw("title", {}, `${link.name}, ${link.rate}`));
  path.addEventListener("click", () => choose(index));
  return path;
});

function network() {
  const others = data.unsampled.map((link) => draw("path", {d: cable(link)}, draw("title", {}, `${link.name}: not sampled`)));
  const nodes = data.nodes.flatMap(({x, y, name, named, is_switch: isSwitch}) => {
    const [r, kind] = isSwitch ? [5, "switch"] : [4, "host"];
    const dot = draw("circle", {cx: x, cy: y, r, class: kind}, draw("title", {}, name));
    return named ? [dot, draw("text", {x, y: y + (isSwitch ? -10 : 18)}, name)] : [dot];
  });
  const attributes = {class: "net", viewBox: `0 0 ${data.width} ${data.height}`, role: "img", "aria-label": "The network"};
  return draw("svg", attributes, ...others, ...cables, ...nodes);
}

/** What each colour stands for. */
function scale() {
  const line = (index) => draw("svg", {viewBox: "0 0 26 10", "aria-hidden": "true"}, draw("path", {class: `u${index}`, d: "M0 5H26"}));
  const from = (index) => `from ${measure.said(Math.round(measure.most * (index - 1) / (COLOURS - 1)))}`;
  const words = (index) => ["nothing", "something"][index] ?? from(index);
  return range(COLOURS).map((index) => make("span", {}, line(index), words(index)));
}

function curve(kind, values) {
  const points = values.map((value, at) => `${at + .5},${68 - 66 * value / measure.most}`);
  return draw("path", {class: kind, d: `M${points.join("L")}`});
}

/** The chosen link over the whole run; or of all links the greatest value and the mean. */
function past() {
  const row = (at) => measure.values.slice(at * links, (at + 1) * links), steps = range(frames);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / links;
  const lines = chosen === null
    ? [curve("mean", steps.map((at) => mean(row(at)))), curve("most", steps.map((at) => greatest(row(at))))]
    : [curve("most", steps.map((at) => valueOf(measure, at, chosen)))];
  const title = chosen === null ? `All links: the greatest ${measure.name}, and the mean (grey)` : `${data.links[chosen].name}: ${measure.name}`;
  const svg = draw("svg", {viewBox: `0 0 ${frames} 70`, preserveAspectRatio: "none", role: "img", "aria-label": title},
    ...lines, draw("path", {class: "now", id: "cursor", d: ""}));
  const said = `0 to ${time(frames * data.every_s)}; the top is ${measure.said(measure.most)}`;
  const foot = make("div", {class: "row soft"}, said);
  if (chosen !== null) {
    const all = make("button", {type: "button"}, "All links");
    all.addEventListener("click", () => choose(chosen));
    foot.append(all);
  }
  return [make("h2", {}, title), svg, foot];
}

/** The links with the greatest values now. */
function busiest() {
  const now = (link) => valueOf(measure, frame, link), order = range(links).filter((link) => now(link) > 0);
  order.sort((a, b) => now(b) - now(a) || a - b);
  const rows = order.slice(0, MOST_ROWS).map((link) => {
    const name = make("button", {type: "button"}, data.links[link].name);
    name.addEventListener("click", () => choose(link));
    return make("tr", {}, make("td", {}, name), ...measures.map((one) => make("td", {}, one.said(valueOf(one, frame, link)))));
  });
  const heads = make("tr", {}, ...["link", ...measures.map((one) => one.name)].map((word) => make("th", {}, word)));
  return [make("h2", {}, `${measure.name} now: ${order.length} of ${links} links`), make("table", {}, heads, ...rows)];
}

/** Shows the frame of the slider. */
function show() {
  cables.forEach((path, link) => {
    path.setAttribute("class", `u${level(measure, valueOf(measure, frame, link))}${link === chosen ? " chosen" : ""}`);
  });
  byId("now").textContent = `${time(frame * data.every_s)} to ${time((frame + 1) * data.every_s)}`;
  byId("cursor").setAttribute("d", `M${frame + .5},0V70`);
  byId("links").replaceChildren(...busiest());
}

/** Shows another measure or another link. */
function change() {
  byId("scale").replaceChildren(...scale());
  byId("past").replaceChildren(...past());
  show();
}

/** Shows one link over time, or all again if it is shown already. */
function choose(link) {
  chosen = link === chosen ? null : link;
  change();
}

function play() {
  const next = () => { frame = (frame + 1) % frames; byId("time").value = frame; show(); };
  if (timer === null) timer = setInterval(next, PLAY_MS);
  else { clearInterval(timer); timer = null; }
  byId("play").textContent = timer === null ? "Play" : "Stop";
  byId("play").setAttribute("aria-pressed", timer !== null);
}

document.title = data.title;
byId("title").textContent = data.title;
byId("about").textContent = data.about;
byId("time").max = frames - 1;
byId("measure").replaceChildren(...measures.map((one) => make("option", {value: one.id}, one.name)));
byId("measure").addEventListener("change", (event) => { measure = measures.find((one) => one.id === event.target.value); change(); });
byId("time").addEventListener("input", (event) => { frame = Number(event.target.value); show(); });
byId("play").addEventListener("click", play);
byId("net").replaceChildren(network());
change();
