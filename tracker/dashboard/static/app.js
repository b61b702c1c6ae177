// The page: what is looked at, the stream of looks, and where each part of a look goes.

import { count, element, graph, plot, plural, slotsText, span, stateText, strip } from "/drawing.js";
import * as overview from "/overview.js";

const $ = (id) => document.getElementById(id);
const LAGS_INTERVAL_MS = 12000;
const STALE_MS = 6000;

let pipeline = null;
let chosen = null;
let byHand = false;
let last = null;
let stream = null;
let heard = 0;
let told = "";
let hour = null;

// --- what is looked at ---------------------------------------------------------------------------

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  return { pipeline: given.get("pipeline"), segment: given.get("segment") };
}

function toAddress() {
  const given = new URLSearchParams();
  if (pipeline) given.set("pipeline", pipeline);
  if (chosen && byHand) given.set("segment", chosen);
  history.replaceState(null, "", `#${given}`);
}

// What the address names: a pipeline, or all of them.
function route() {
  const asked = fromAddress();
  if (!asked.pipeline) all();
  else if (asked.pipeline !== pipeline) watch(asked.pipeline, asked.segment);
  else if (asked.segment && asked.segment !== chosen) choose(asked.segment);
}

function turnTo(place) {
  for (const each of ["overview", "page"]) $(each).hidden = each !== place;
  trouble("");
  link("connecting", "connecting");
}

function all() {
  stream?.close();
  pipeline = last = null;
  turnTo("overview");
  $("name").textContent = "";
  document.title = "Lowmark";
  overview.start((page, wrong) => {
    // Where there is one there is nothing to choose, unless it is asked for.
    if (page?.all === 1 && page.pipelines.length && !location.hash) return watch(page.pipelines[0].name, null);
    trouble(wrong);
    if (!page) return link("lost", "trying again");
    heard = Date.now();
    link("live", "live");
  });
}

function watch(name, segment) {
  overview.stop();
  turnTo("page");
  pipeline = name;
  chosen = segment;
  byHand = segment !== null;
  last = null;
  told = "";
  hour = null;
  $("name").textContent = name;
  document.title = `${name} – Lowmark`;
  toAddress();
  lags();
  stream?.close();
  stream = new EventSource(`/api/events?pipeline=${encodeURIComponent(name)}`);
  stream.addEventListener("look", (event) => {
    heard = Date.now();
    trouble("");
    link("live", "live");
    last = JSON.parse(event.data);
    show();
  });
  stream.addEventListener("trouble", (event) => {
    heard = Date.now();
    trouble(JSON.parse(event.data).error);
  });
  stream.addEventListener("error", async () => {
    link("lost", "trying again");
    if (stream.readyState === EventSource.CLOSED) {
      // Refused, by too many viewers perhaps: what is said is not an event.
      const again = name;
      setTimeout(() => { if (pipeline === again) watch(again, byHand ? chosen : null); }, 10000);
      trouble("The dashboard does not take another viewer now; trying again.");
    }
  });
}

function link(state, text) {
  $("link").dataset.state = state;
  $("link-text").textContent = text;
}

function trouble(text) {
  $("trouble").hidden = !text;
  if ($("trouble").textContent !== text) $("trouble").textContent = text;
}

// --- showing a look ------------------------------------------------------------------------------

function show() {
  if (!last) return;
  const segments = last.segments;
  if (!byHand || !segments.some((segment) => segment.name === chosen)) {
    byHand = false;
    chosen = (segments.find((segment) => segment.state === "stuck") ?? segments[0])?.name ?? null;
  }
  const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  headline();
  const room = $("graph");
  const scrolled = room.scrollLeft;
  room.replaceChildren(graph(last, chosen, room.clientWidth, choose));
  room.scrollLeft = scrolled;
  why();
  $("strip").replaceChildren(strip(last));
  plotHour();
  fresh();
  fronts();
  shards();
  nodes();
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function choose(name) {
  chosen = name;
  byHand = true;
  toAddress();
  show();
}

function headline() {
  const stuck = last.segments.filter((segment) => segment.state === "stuck");
  if (last.complete) {
    $("headline-before").textContent = "Everything is";
    $("headline-time").replaceChildren("complete");
    $("headline-after").textContent = "all fronts have left, and nothing is open";
  } else {
    $("headline-before").textContent = "Everything before";
    $("headline-time").replaceChildren(last.min_time, element("small", {}, last.min_time.startsWith("slot") ? "" : " UTC"));
    $("headline-after").textContent = last.begun ? "is processed" : "is processed; the declared fronts have not all joined";
  }
  const short = last.fresh.find((window) => window.seconds === 300);
  const facts = [
    ["State", last.complete ? "complete" : stuck.length ? `${plural(stuck.length, "segment")} stuck` : last.begun ? "moving" : "waits for fronts", stuck.length > 0],
    ["Behind the fronts", slotsText(last.lag_slots, last.lag_ms)],
    ["Behind the clock", last.complete ? "–" : span(last.age_ms)],
    ["Lag of 5 min, p99", short ? span(short.p99) : "–"],
    ["Open items", count(last.segments.reduce((sum, segment) => sum + Math.max(0, segment.open_items), 0))],
  ];
  if (last.late_items) facts.push(["Late items", count(last.late_items), true]);
  if (last.written_off_items) facts.push(["Written off", count(last.written_off_items), true]);
  if (last.generation) facts.push(["Restarts", count(last.generation)]);
  $("facts").replaceChildren(...facts.map(([name, value, bad]) =>
    element("div", {}, element("dt", {}, name), element("dd", { class: bad ? "bad" : null }, value))));
  $("under-way").hidden = !last.changes.length;
  $("under-way").replaceChildren(...last.changes.map((text) => element("li", {}, text)));
  const now = stuck.length ? `stuck: ${stuck.map((segment) => segment.name).join(", ")}` : last.complete ? "complete" : "moving";
  if (told && told !== now) $("changes").textContent = `The pipeline is ${now}`;
  told = now;
}

function why() {
  const segment = last.segments.find((each) => each.name === chosen);
  if (!segment) return $("why").replaceChildren();
  const heading = element("h3", {}, `${segment.name}: ${stateText(segment.state).slice(2)} `,
    element("a", { class: "share", href: overview.address(pipeline, segment.name), "data-key": "share" }, "link to this segment"));
  if (segment.state === "complete") return $("why").replaceChildren(heading);
  const parts = [heading, element("p", {}, `min time ${segment.min_time}, for ${span(segment.standing_ms)}`)];
  if (segment.causes.length) {
    parts.push(element("ol", {}, ...segment.causes.map((cause, place) =>
      element("li", { class: cause.trouble ? "is-trouble" : null },
        element("span", { class: place ? null : "first" }, cause.text),
        element("span", { class: "advice" }, cause.advice)))));
  } else {
    parts.push(element("p", {}, "Nothing is known to hold it: it moves on."));
  }
  if (segment.units.length) {
    const more = segment.more_units ? ` and ${count(segment.more_units)} more` : "";
    parts.push(element("p", {}, `Open units: ${segment.units.join(", ")}${more}`));
  }
  $("why").replaceChildren(...parts);
}

function table(place, heads, rows, empty, more = 0) {
  if (!rows.length) return $(place).replaceChildren(element("p", { class: "empty" }, empty));
  const cell = (name, value) => {
    const { text, is } = typeof value === "object" ? value : { text: value, is: null };
    return element(name, { class: is, scope: name === "th" ? "col" : null }, text);
  };
  const all = element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => cell("th", head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value) => cell("td", value))))));
  const left = $(place).scrollLeft;
  $(place).replaceChildren(all, ...(more ? [element("p", { class: "more" }, `and ${count(more)} more`)] : []));
  $(place).scrollLeft = left;
}

const number = (text) => ({ text, is: "number" });
const silent = (ms, most) => ({ text: span(ms), is: ms > most ? "number bad" : "number" });

async function lags() {
  const asked = pipeline;
  if (!asked) return;
  try {
    const answer = await fetch(`/api/lags?pipeline=${encodeURIComponent(asked)}`);
    const found = await answer.json();
    if (asked === pipeline) hour = found;
  } catch (error) {
    return; // the stream of looks says what is wrong
  }
  plotHour();
}

function plotHour() {
  if (!hour || !last) return $("hour").replaceChildren();
  const wrong = hour.error || hour.why;
  if (wrong || !hour.segments.length) return $("hour").replaceChildren(wrong ? element("p", { class: "empty" }, wrong) : "");
  const of = (name) => hour.segments.find((each) => each.name === name);
  const one = of(chosen);
  $("hour").replaceChildren(plot([
    { ...of(""), name: "whole pipeline", is: "whole" }, ...(one ? [{ ...one, is: "chosen" }] : []),
  ], hour.seconds));
}

function fresh() {
  const of = (windows, seconds, key) => {
    const window = windows.find((each) => each.seconds === seconds);
    return number(window ? span(window[key]) : "–");
  };
  table("fresh", ["Segment", number("now"), number("5 min p50"), number("p95"), number("p99"), number("1 h p50"), number("p95"), number("p99")],
    [...last.segments, { ...last, name: "whole pipeline" }].map((segment) => [
      segment.name, number(slotsText(segment.lag_slots, segment.lag_ms)),
      ...[300, 3600].flatMap((seconds) => ["p50", "p95", "p99"].map((key) => of(segment.fresh, seconds, key))),
    ]), "", last.more_segments);
}

const SILENT_MS = 15000;

function fronts() {
  table("fronts", ["Front", "Feeds", "Promises", number("Behind"), number("Silent")], [
    ...last.missing_fronts.map((front) => [front, "–", { text: "has not joined", is: "warn" }, number("–"), number("–")]),
    ...last.fronts.map((front) => [
      front.front === front.node_id ? front.front : `${front.node_id}/${front.front}`, front.segment,
      front.settled ? { text: front.promise || "nothing yet", is: "time" } : { text: "joins or leaves", is: "warn" },
      number(slotsText(front.behind_slots, front.behind_ms)), silent(front.silent_ms, SILENT_MS),
    ]),
  ], last.complete ? "All fronts have left." : "No front has joined.", last.more_fronts);
}

const ROLES = { owner: "serves", spare: "owns nothing yet", joining: "joins", draining: "drains", leaving: "leaves" };

function shardState(shard) {
  if (shard.role === "joining") return { text: ROLES.joining, is: "warn" };
  if (!shard.answers) return { text: "does not answer", is: "bad" };
  if (!shard.linked) return { text: "cut off", is: "bad" };
  return { text: ROLES[shard.role] || ROLES.owner, is: shard.role === "owner" ? "good" : "warn" };
}

function shards() {
  table("shards", ["Shard", "Address", "State", number("Behind"), "Store"], last.shards.map((shard) => [
    String(shard.shard), { text: shard.address, is: "time" },
    shardState(shard),
    number(count(shard.behind)),
    !shard.answers ? "–" : shard.store_error || shard.store_waiting_ms > 1000
      ? { text: `takes nothing for ${span(shard.store_waiting_ms)}${shard.store_error ? `: ${shard.store_error}` : ""}`, is: "bad" }
      : { text: "takes writes", is: "good" },
  ]), "No shard answers.");
}

function nodes() {
  table("nodes", ["Node", "Kind", "State", "Waits for", number("Silent"), number("Ticks"), "Consumes from", "Creates in"], last.nodes.map((node) => [
    node.node_id, node.kind,
    node.gone ? { text: node.gone, is: "bad" } : node.refused ? { text: `refused: ${node.refused}`, is: "bad" }
      : node.waits.length ? { text: "waits", is: "bad" }
      : node.connected ? { text: node.staged.length ? `connected, ${node.staged.join(", ")} staged` : "connected", is: "good" }
      : { text: node.staged.length ? `not connected, ${node.staged.join(", ")} staged` : "not connected", is: "bad" },
    [...node.waits, ...node.holds].join("; ") || "–",
    silent(node.silent_ms, SILENT_MS), number(count(node.ticks)), node.consumes.join(", ") || "–", node.creates.join(", ") || "–",
  ]), "No node has joined.", last.more_nodes);
}

// --- by keyboard, and otherwise ------------------------------------------------------------------

$("graph").addEventListener("keydown", (event) => {
  const boxes = [...$("graph").querySelectorAll(".segment")];
  const at = boxes.indexOf(document.activeElement);
  if (at < 0) return;
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  let to = at;
  if (event.key in steps) to = Math.min(Math.max(at + steps[event.key], 0), boxes.length - 1);
  else if (event.key === "Home") to = 0;
  else if (event.key === "End") to = boxes.length - 1;
  else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    return choose(boxes[at].dataset.key.slice("segment ".length));
  } else return;
  event.preventDefault();
  boxes[to].focus();
});
addEventListener("hashchange", route);
$("skip").addEventListener("click", () => $("main").focus());
let resized = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(show);
});
setInterval(() => {
  if (heard && Date.now() - heard > STALE_MS) link("lost", `nothing heard for ${span(Date.now() - heard)}`);
}, 1000);
setInterval(lags, LAGS_INTERVAL_MS);
route();
