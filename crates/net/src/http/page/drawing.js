"use strict";
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
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Makes what is there like what is new, and leaves what is equal alone: selections and tooltips survive. */
function become(old, now) {
  for (const {name} of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const {name, value} of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  fill(old, [...now.childNodes]);
}

/** The same for the children; those with a key stay with it, wherever they move. */
function fill(parent, children) {
  const wanted = new Set(children.map((child) => child.dataset?.key)), known = new Map();
  for (const child of [...parent.children].filter((child) => child.dataset.key)) {
    if (wanted.has(child.dataset.key)) known.set(child.dataset.key, child);
    else child.remove();
  }
  children.forEach((now, i) => {
    let old = parent.childNodes[i];
    const key = now.dataset?.key;
    if (key && known.has(key) && known.get(key) !== old) {
      parent.insertBefore(known.get(key), old ?? null);
      old = parent.childNodes[i];
    }
    if (!old) parent.append(now);
    else if (old.nodeName !== now.nodeName || (old.dataset?.key ?? null) !== (key ?? null)) parent.insertBefore(now, old);
    else if (old.nodeType === Node.TEXT_NODE) { if (old.data !== now.data) old.data = now.data; }
    else become(old, now);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

/** The next number above that people read easily. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * .9999);
}

/** The seconds that graphs show: as many whole minutes as there are samples for, five at most. */
const range = (samples) => [60, 120, 300].find((seconds) => samples <= seconds) ?? 300;

/** The line of a graph, right-aligned at now. */
function curve(values, looks, most) {
  const point = (value, i) => `${looks - values.length + i + 1},${50 - (most ? 48 * value / most : 0)}`;
  return draw("path", {class: "line", d: values.length ? "M" + values.map(point).join("L") : ""});
}

const canvas = (looks, attributes, ...children) =>
  draw("svg", {viewBox: `0 0 ${looks} 52`, preserveAspectRatio: "none", role: "img", ...attributes}, ...children);

/** A graph of the last minutes, with its scale. */
function graph(title, values, said, looks, isBad = false) {
  const last = values.at(-1) ?? 0, peak = Math.max(0, ...values), most = peak > 0 ? roundUp(peak) : 0;
  const label = `${title}: now ${said(last)}, at most ${said(peak)}`;
  const minutes = Array.from({length: looks / 60 - 1}, (_, i) => `M${60 * (i + 1)},0V52`).join("");
  const svg = canvas(looks, {"aria-label": label, class: isBad ? "bad" : ""},
    draw("title", {}, label), draw("path", {class: "grid", d: `M0,2H${looks}M0,26H${looks}${minutes}`}), curve(values, looks, most));
  const words = (kind, ...texts) => make("div", {class: kind}, ...texts.map((text) => make("span", {}, text)));
  const scale = most ? [said(most), said(most / 2), "0"] : ["", "0"];
  return make("figure", {}, make("figcaption", {}, `${title}: `, make("b", {}, said(last))), words("scale", ...scale), svg,
    words("time", looks > 60 ? `${looks / 60} minutes ago` : "1 minute ago", "now"));
}

/** A graph in one line of a list. */
function sparkline(title, values, said, looks) {
  const peak = Math.max(0, ...values), label = `${title}, at most ${said(peak)}`;
  return make("figure", {}, canvas(looks, {"aria-label": label}, draw("title", {}, label), curve(values, looks, peak)));
}

const shorter = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
const BOX = 42, GAP = 34;

/** A node of a picture, its middle at `x`: {name, detail, hint, kind, href}. */
function box(x, y, wide, {name, detail, hint, kind, href}) {
  const letters = Math.floor(wide / 6.6), text = [draw("text", {x, y: y + 18}, shorter(name, letters))];
  if (detail) text.push(draw("text", {x, y: y + 33, class: "detail"}, shorter(detail, letters + 2)));
  const shape = draw("rect", {x: x - wide / 2, y: y + 1, width: wide, height: detail ? BOX - 2 : 26, rx: 5});
  const inside = [draw("title", {}, hint ?? `${name} ${detail}`), shape, ...text];
  return draw("g", kind ? {class: kind} : {}, ...(href ? [draw("a", {href}, ...inside)] : inside));
}

/** A line of a picture from below one box to above another: {hint, kind}. */
const line = (x, y, tox, toy, {hint, kind}) =>
  draw("path", {d: `M${x},${y} L${tox},${toy}`, ...kind ? {class: kind} : {}}, ...(hint ? [draw("title", {}, hint)] : []));

/** Rows of nodes with lines between them; `lines` are {from, to, hint, kind}, by the nodes' names. */
function picture(label, rows, lines, wide) {
  const filledRows = rows.filter((row) => row.length), places = new Map();
  const columns = Math.max(...filledRows.map((row) => row.length)), step = wide + 10, width = columns * step;
  filledRows.forEach((row, level) => row.forEach((node, i) =>
    places.set(node.name, {x: width * (i + .5) / row.length, y: level * (BOX + GAP), node})));
  const height = filledRows.length * (BOX + GAP) - GAP + 2;
  const ends = lines.map((one) => [places.get(one.from), places.get(one.to), one]).filter(([a, b]) => a && b);
  return draw("svg", {class: "net", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label},
    ...ends.map(([a, b, one]) => a.y < b.y ? line(a.x, a.y + BOX - 1, b.x, b.y + 1, one) : line(b.x, b.y + BOX - 1, a.x, a.y + 1, one)),
    ...[...places.values()].map(({x, y, node}) => box(x, y, wide, node)));
}

/** A switch of a tree among its neighbours, or a fabric's switch among its own. */
function neighbours({switch: own, jobs}) {
  const toward = (name, there) => ({from: own.fabric?.node ?? own.listen, to: name, kind: there ? "" : "down"});
  if (own.fabric) {
    const me = {name: own.fabric.node, detail: "this switch"};
    const around = own.fabric.ports.map((port) => ({name: port.peer, kind: port.up ? "" : "down", uplink: port.uplink,
      detail: port.up ? `out ${bits(port.tx_gbps)}, in ${bits(port.rx_gbps)}` : `port ${port.port}: silent`}));
    const rows = [around.filter((node) => node.uplink), [me], around.filter((node) => !node.uplink)];
    return picture(`${me.name} and its neighbours`, rows, around.map((node) => toward(node.name, !node.kind)), 190);
  }
  const below = new Map();
  for (const job of jobs) {
    for (const {addr, ranks, state} of job.switches) {
      const known = below.get(addr ?? "?") ?? {jobs: [], there: true};
      known.jobs.push(`${job.name}: ${list(ranks)}`);
      known.there &&= state === "present";
      below.set(addr ?? "?", known);
    }
  }
  if (!own.parent && !below.size) return null;
  const above = own.parent ? [{name: own.parent, detail: own.parent_failure ? "not healthy" : "parent", kind: own.parent_failure ? "down" : "",
    hint: own.parent_failure ?? own.parent}] : [];
  const children = [...below].map(([name, {jobs, there}]) => ({name, kind: there ? "" : "down", hint: `${name}\n${jobs.join("\n")}`,
    detail: jobs.length === 1 ? jobs[0] : counted(jobs.length, "job")}));
  return picture(`${own.listen} and its neighbours`, [above, [{name: own.listen, detail: "this switch"}], children],
    [...above, ...children].map((node) => toward(node.name, !node.kind)), 180);
}

const HOST = 120;

/** The whole fabric, as its controller sees it. */
function fabric({switch: {fabric: own}, jobs}) {
  const names = new Map(jobs.map((job) => [job.id, job.name])), switches = new Map(own.switches.map((one) => [one.node, one]));
  const rows = [], lines = new Map(), hosts = [];
  for (const one of own.switches) {
    const here = one.jobs.map((id) => names.get(id)).filter((name) => name);
    const lost = one.cables.reduce((sum, cable) => sum + cable.tx_drops, 0);
    const hint = `${one.node} at ${one.control}\n${one.silent ?? `dropped ${count(lost)} packets`}\n${here.join("\n") || "no job"}`;
    (rows[own.switches[0].level - one.level] ??= []).push({name: one.node, hint, kind: one.silent ? "down" : "", href: `//${one.control}/`,
      detail: one.silent ? "does not answer" : `${counted(here.length, "job")}${lost ? `, ${count(lost)} dropped` : ""}`});
    const behind = one.cables.filter((cable) => !switches.has(cable.peer));
    for (const cable of one.cables) {
      const key = [one.node, cable.peer].sort().join(" "), said = lines.get(key)?.hint;
      const flows = cable.tx_gbps + cable.rx_gbps > 0 ? "flows" : "";
      const hint = said ?? `${one.node} to ${cable.peer}: ${bits(cable.tx_gbps)}, back: ${bits(cable.rx_gbps)}`;
      const isDown = !cable.up || switches.get(cable.peer)?.silent || lines.get(key)?.kind === "down";
      lines.set(key, {from: one.node, to: cable.peer, hint, kind: isDown ? "down" : flows});
    }
    hosts.push([one, behind]);
  }
  // Hosts for which the window is too narrow are one box for each switch.
  const all = hosts.flatMap(([, behind]) => behind), fits = all.length * (HOST + 10) < innerWidth - 60;
  if (fits) rows.push(all.map((cable) => ({name: cable.peer, detail: "", kind: "host"})));
  else {
    rows.push(hosts.filter(([, behind]) => behind.length).map(([{node}, behind]) => {
      const name = `${behind.length} hosts of ${node}`;
      lines.set(name, {from: node, to: name, hint: behind.map((cable) => cable.peer).join(", ")});
      return {name, detail: "", kind: "host"};
    }));
  }
  return picture(`A fabric of ${own.switches.length} switches`, rows.filter((row) => row), [...lines.values()], fits && all.length > 6 ? HOST : 150);
}
