/** The switch sends an event a second; after an error the page tries again as soon. */
const EVERY_MS = 1000, SILENT_MS = 5000;
/** More jobs than these are a list, unless the reader has chosen. */
const MOST_CARDS = 24;
/** Packets that were lost within these seconds are shown in red. */
const JUST_S = 60;
const byId = (id) => document.getElementById(id);
/** The jobs of the list that the reader has opened. */
const opened = new Set();
let token = null, heard = null, heardAt = null, stream = null;

const fixed = (value, digits) => value.toFixed(digits);
const count = (value) => Math.round(value).toLocaleString("en");
const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const list = (ranks) => (ranks.length === 1 ? "rank " : "ranks ") + spans(ranks);
const keyOf = (job) => `${job.name} ${job.id}`;

/** "0-3, 7" */
function spans(ranks) {
  const lines = [];
  for (let i = 0; i < ranks.length;) {
    let end = i;
    while (end + 1 < ranks.length && ranks[end + 1] === ranks[end] + 1) end++;
    lines.push(end === i ? `${ranks[i]}` : `${ranks[i]}-${ranks[end]}`);
    i = end + 1;
  }
  return lines.join(", ");
}

function ago(seconds) {
  if (seconds < 120) return `${fixed(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${fixed(seconds / 60, 0)} min`;
  return `${fixed(seconds / 3600, 1)} h`;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${fixed(count, unit ? 1 : 0)} ${units[unit]}`;
}

/** A rate in Gbit/s, in the unit that leaves digits before the point. */
function bits(gbps) {
  const units = ["Gbit/s", "Mbit/s", "kbit/s", "bit/s"];
  let unit = 0;
  for (; gbps > 0 && gbps < 1 && unit < units.length - 1; unit++) gbps *= 1000;
  return gbps > 0 ? `${fixed(gbps, gbps < 10 ? 1 : 0)} ${units[unit]}` : "0 bit/s";
}

const packets = (rate) => `${rate > 0 && rate < 10 ? fixed(rate, 1) : count(rate)} packets/s`;

/** Each rank: here, waited for, lost, gone, or not come yet. */
function ranks(job, isStill) {
  const members = new Map(job.members.map((member) => [member.rank, member]));
  for (const below of job.switches) {
    for (const rank of below.ranks) members.set(rank, {addr: below.addr, state: below.state, last_seen_s_ago: below.last_seen_s_ago});
  }
  const waited = new Set(isStill ? job.waiting_for : []), items = [];
  for (let rank = 0; rank < job.world_size; rank++) {
    const member = members.get(rank);
    let state = member ? member.state : "absent";
    if (waited.has(rank) && state === "present") state = "waited";
    const words = {present: "here", waited: "waited for", lost: "lost", left: "has left", absent: "has not come"};
    const lastSeen = member && member.last_seen_s_ago !== null ? `, last seen ${ago(member.last_seen_s_ago)} ago` : "";
    const said = `rank ${rank}: ${words[state] ?? state}${member ? `, ${member.addr}${lastSeen}` : ""}`;
    items.push(make("li", {class: state, title: said, "aria-label": said}, `${rank}`));
  }
  return make("ul", {class: "ranks", "aria-label": "Ranks"}, ...items);
}

const standsStill = (job, past) => past && past.still_s !== null && job.waiting_for.length > 0;

/** What is wrong with a job, or what it waits for. */
function complaints(job, past) {
  const said = [];
  if (job.broken) said.push(make("span", {class: "bad"}, job.broken));
  if (job.missing.length) said.push(make("span", {class: job.state === "forming" ? "soft" : "bad"}, `${list(job.missing)} missing`));
  if (standsStill(job, past)) {
    said.push(make("span", {class: "wait"}, `stands still for ${ago(past.still_s)}: waits for ${list(job.waiting_for)}`));
  }
  return said;
}

function card(job, past, looks) {
  const about = `${job.client ? `${job.client}, ` : ""}${job.protocol}, ${job.state}, ${counted(job.world_size, "rank")}, for ${ago(job.age_s)}, ${bytes(job.memory_bytes)}`;
  const facts = [make("h2", {}, job.name), make("span", {class: "soft"}, about), ...complaints(job, past)];
  const lines = [make("div", {class: "row"}, ...facts), ranks(job, standsStill(job, past))], now = job.operation;
  if (now) {
    const what = `${now.name} ${count(now.number)}: ${now.op ?? "words"} of ${count(now.elements)} ${now.dtype}`;
    const lacking = now.not_begun.length ? `; ${list(now.not_begun)} not in it yet` : "";
    lines.push(make("div", {class: lacking && now.for_s > 1 ? "wait" : "soft"}, `In ${what}, for ${ago(now.for_s)}${lacking}`));
  } else if (job.collectives) {
    lines.push(make("div", {class: "soft"}, `${counted(job.collectives, "collective")} done`));
  }
  if (past && past.stragglers.length) {
    const slow = past.stragglers.slice(0, 3).map((one) => `rank ${one.rank} (${fixed(100 * one.share, 0)} %)`);
    lines.push(make("div", {class: "soft"}, `Waited for in the last minute: ${slow.join(", ")}`));
  }
  if (past && job.id !== null) {
    // Most were sent again too early, or while a rank is waited for: no fault, so they are not red.
    const graphs = [graph("Tensor summed", past.goodput_gbps, bits, looks)];
    if (past.drops_per_s.some((rate) => rate > 0)) graphs.push(graph("Packets of no use", past.drops_per_s, packets, looks));
    lines.push(make("div", {class: "graphs"}, ...graphs));
  }
  return make("section", {class: "card", "data-key": keyOf(job)}, ...lines);
}

/** The jobs that the reader wants to see, in the order that was chosen. */
function chosen(jobs, past) {
  const wanted = byId("filter").value.toLowerCase(), of = (job) => past.get(keyOf(job));
  const orders = {"age": (job) => job.age_s, "rate": (job) => of(job)?.goodput_gbps.at(-1) ?? 0, "standing still": (job) => of(job)?.still_s ?? 0};
  const first = orders[byId("order").value] ?? (() => 0);
  const words = (job) => `${job.name} ${job.client ?? ""} ${job.protocol} ${job.state}${standsStill(job, of(job)) ? " stands still" : ""}`;
  const found = jobs.filter((job) => words(job).toLowerCase().includes(wanted));
  return found.sort((a, b) => first(b) - first(a) || a.name.localeCompare(b.name, "en", {numeric: true}));
}

const row = (kind, words) => make("tr", {}, ...words.map((word) => make(kind, {}, word)));

/** Jobs as lines of a table; a job that the reader opens has its card below. */
function table(jobs, past, looks) {
  const less = (kind, word) => make(kind, {class: "less"}, word);
  const heads = make("tr", {}, make("th", {}, "job"), less("th", "tenant or client"), less("th", "protocol"), make("th", {}, "state"),
    make("th", {}, "ranks"), make("th", {}, "summed"), less("th", looks > 60 ? `last ${looks / 60} minutes` : "last minute"), less("th", "for"));
  const rows = jobs.flatMap((job) => {
    const key = keyOf(job), known = past.get(key), isOpen = opened.has(key), rates = known?.goodput_gbps ?? [];
    const name = make("button", {type: "button", "data-job": key, "aria-expanded": isOpen}, job.name), wrong = complaints(job, known);
    const state = make("td", {class: "state"}, job.state, ...wrong.flatMap((one) => [", ", one]));
    const line = make("tr", {"data-key": key}, make("td", {}, name), less("td", job.client ?? ""), less("td", job.protocol), state,
      make("td", {}, `${job.world_size}`), make("td", {}, bits(rates.at(-1) ?? 0)), less("td", sparkline("Tensor summed", rates, bits, looks)),
      less("td", ago(job.age_s)));
    const detail = () => make("tr", {"data-key": `${key} card`}, make("td", {colspan: "8"}, card(job, known, looks)));
    return isOpen ? [line, detail()] : [line];
  });
  return make("section", {class: "card whole", "data-key": "list"}, make("table", {class: "list"}, heads, ...rows));
}

/** What each client has and does, and how often it was refused. */
function clients(all) {
  const rows = all.map((one) => row("td", [one.client, `${one.jobs}`, bytes(one.memory_bytes), bits(one.goodput_gbps), packets(one.packets_per_s),
    count(one.refused), one.last_refusal ? `${one.last_refusal.code}, ${ago(one.last_refusal.s_ago)} ago` : ""]));
  return [make("h2", {}, "Tenants and clients"),
    make("table", {}, row("th", ["client", "jobs", "memory", "summed", "packets", "refused joins", "last refusal"]), ...rows)];
}

/** What has ended in the last hour, the last one first. */
function endedJobs(jobs) {
  const rows = jobs.map((job) => row("td", [job.name, job.client, job.protocol, `${job.world_size}`, job.end, `${ago(job.ended_s_ago)} ago`,
    ago(job.lasted_s), bytes(job.goodput_bytes), job.why ?? ""]));
  return [make("h2", {}, "Ended in the last hour"),
    make("table", {}, row("th", ["job", "client", "protocol", "ranks", "end", "when", "lasted", "summed", "why"]), ...rows)];
}

const isLoopback = (name) => /^(127\.|localhost$|\[?::1\]?$)/.test(name);

/** The switch's address as a worker may write it: the page may have come through a tunnel, or by the operators' address. */
function addressForWorkers({listen}) {
  const [, ip, port] = listen.match(/^(.*):(\d+)$/), isAny = ip === "0.0.0.0" || ip === "[::]";
  if (!isAny) return listen;
  return isLoopback(location.hostname) ? `ADDRESS-OF-THE-SWITCH:${port}` : `${location.hostname}:${port}`;
}

function firstJob(own) {
  const where = own.fabric ? `from a host that is connected to ${own.fabric.node}` : "from any host that reaches this switch";
  return make("section", {class: "card", "data-key": "none"}, make("h2", {}, "No job is here"), make("p", {}, `A first one, ${where}: `,
    make("code", {}, `tributary allreduce --switch ${addressForWorkers(own)} --job first --rank 0 --world-size 1 --elements 1000000`)));
}

/** The jobs that the earlier program still serves. */
const earlierJobs = ({earlier_jobs: jobs = []}) =>
  jobs.length ? `; the earlier program serves ${counted(jobs.length, "job")}: ${shorter(jobs.join(", "), 100)}` : "";

/** What an operator has to mend. */
function wrongs({switch: own}) {
  const said = [];
  if (own.parent_failure) said.push(`The parent switch ${own.parent} is not healthy: ${own.parent_failure}`);
  for (const shard of own.shards.filter((shard) => !shard.alive)) said.push(`Shard ${shard.shard} has ended: restart the switch.`);
  for (const one of own.fabric?.switches ?? []) if (one.silent) said.push(`Switch ${one.node} does not answer: ${one.silent}`);
  if (own.fabric && !own.fabric.ready) said.push(`This switch does not know the running jobs yet: ${own.fabric.controller} has not told it.`);
  return said.map((words) => make("div", {class: "bad"}, words));
}

function show(status, history, ended) {
  const own = status.switch, looks = range(history.switch.rx_gbps.length);
  byId("listen").textContent = own.fabric ? `${own.fabric.node}, ${own.listen}` : own.listen;
  const role = !own.fabric ? [] : own.fabric.node === own.fabric.controller ? [", controller of its fabric"]
    : [", jobs are formed at ", make("a", {href: `//${own.fabric.controller_addr}/`}, own.fabric.controller), ", which shows the whole fabric"];
  const about = make("span", {}, `version ${own.version}, up for ${ago(own.uptime_s)}, ${status.jobs.length} of at most ${count(own.max_jobs)} jobs, ` +
    `${bytes(own.memory_used_bytes)} of ${bytes(own.memory_bytes)} in use${own.cordoned ? ", cordoned" : ""}${earlierJobs(own)}`, ...role);
  fill(byId("about"), [about]);
  document.title = `${counted(status.jobs.length, "job")} at ${own.listen}`;
  fill(byId("wrong"), wrongs(status));
  fill(byId("switch"), [graph("In", history.switch.rx_gbps, bits, looks), graph("Out", history.switch.tx_gbps, bits, looks),
    graph("Lost in its buffers", history.switch.overflows_per_s, packets, looks, history.switch.overflows_per_s.slice(-JUST_S).some((lost) => lost > 0))]);
  const drawn = own.fabric?.switches?.length ? fabric(status) : neighbours(status);
  fill(byId("around"), drawn ? [drawn] : []);
  const past = new Map(history.jobs.map((job) => [keyOf(job), job])), found = chosen(status.jobs, past);
  byId("find").hidden = status.jobs.length < 2;
  byId("shown").textContent = `${found.length} of ${status.jobs.length}`;
  const isList = byId("form").value === "list" || byId("form").value === "" && found.length > MOST_CARDS;
  const cards = isList ? [table(found, past, looks)] : found.map((job) => card(job, past.get(keyOf(job)), looks));
  fill(byId("jobs"), status.jobs.length ? cards : [firstJob(own)]);
  const everybody = own.clients ?? [];
  byId("clients").hidden = everybody.length < 2 && !everybody.some((one) => one.refused);
  fill(byId("clients"), clients(everybody));
  byId("ended").hidden = !ended.length;
  fill(byId("ended"), endedJobs(ended));
}

/** Passes what the switch observes on to `take`, until its events end. */
async function events(stop, take) {
  const silent = () => setTimeout(() => stop.abort(), SILENT_MS);
  let timer = silent();
  try {
    const headers = token === null ? {} : {Authorization: `Bearer ${token}`};
    const answer = await fetch("/events", {headers, cache: "no-store", signal: stop.signal});
    if (!answer.ok) {
      const {error} = await answer.json().catch(() => ({error: `the switch answers /events with ${answer.status}`}));
      throw Object.assign(new Error(error), {status: answer.status});
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = "";;) {
      const {done, value} = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = silent();
      const whole = (text + value).split("\n\n");
      text = whole.pop();
      if (whole.length) take(JSON.parse(whole.at(-1).replace(/^data: /, "")));
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Shows what the switch observes, for as long as it is there. */
async function follow() {
  const mine = stream = new AbortController();
  let trouble = "The switch does not answer.";
  try {
    await events(mine, (observed) => {
      if (stream !== mine) return;
      heard = observed;
      heardAt = new Date();
      byId("ask").hidden = true;
      byId("trouble").textContent = "";
      // A fault of the page itself is none of the switch's.
      setTimeout(look);
    });
  } catch (error) {
    if (error.status === 401 && stream === mine) {
      byId("ask").hidden = false;
      byId("jobs").replaceChildren();
      byId("trouble").textContent = token === null ? "" : "This token is none of this switch's.";
      return;
    }
    if (error.status) trouble = error.message;
  }
  if (stream !== mine) return;
  const since = heardAt === null ? "" : ` What is below is of ${heardAt.toLocaleTimeString()}.`;
  byId("trouble").textContent = trouble + since;
  setTimeout(() => stream === mine && follow(), EVERY_MS);
}

byId("jobs").addEventListener("click", (event) => {
  const key = event.target.dataset?.job;
  if (key === undefined) return;
  if (!opened.delete(key)) opened.add(key);
  look();
});

function look() {
  if (heard !== null) show(heard.status, heard.history, heard.ended);
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  stream.abort();
  token = byId("token").value;
  byId("token").value = "";
  follow();
});
for (const id of ["filter", "order", "form"]) byId(id).addEventListener("input", look);
follow();
