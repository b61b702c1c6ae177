// The page: what is looked at, the stream of looks, and where each part of a look goes.

import { count, element, graph, plot, plural, slotsText, span, stateText, strip } from "/drawing.js";
import { ask } from "/asking.js";
import * as overview from "/overview.js";

const $ = (id) => document.getElementById(id);
const LOOK_INTERVAL_MS = 1000;
const TROUBLE_INTERVAL_MS = 2000;
const LAGS_INTERVAL_MS = 12000;
const STALE_MS = 6000;

let pipeline = null;
let chosen = null;
let byHand = false;
let last = null;
let timer = 0;
let asked = 0;
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
  asked += 1;
  clearTimeout(timer);
  pipeline = last = null;
  turnTo("overview");
  $("name").textContent = "";
  document.title = "Lowmark";
  overview.start((page, wrong) => {
    // Where there is one there is nothing to choose, unless it is asked for.
    if (page?.all === 1 && page.pipelines.length && !location.hash) return watch(page.pipelines[0].pipeline, null);
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
  look(name);
}

// One look, and a second after its answer the next, as long as it is looked at.
async function look(name) {
  clearTimeout(timer);
  const mine = ++asked;
  let pause = LOOK_INTERVAL_MS;
  try {
    const found = await ask(`pipelines/${encodeURIComponent(name)}`);
    if (mine !== asked) return;
    heard = Date.now();
    trouble("");
    link("live", "live");
    last = found;
    show();
  } catch (error) {
    if (mine !== asked) return;
    link("lost", "trying again");
    trouble(error.message);
    pause = TROUBLE_INTERVAL_MS;
  }
  timer = setTimeout(() => look(name), pause);
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
  if (!byHand || !segments.some((each) => each.segment === chosen)) {
    byHand = false;
    chosen = (segments.find((each) => each.state === "stuck") ?? segments[0])?.segment ?? null;
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
    $("headline-time").replaceChildren(last.text, element("small", {}, last.time ? " UTC" : ""));
    $("headline-after").textContent = last.begun ? "is processed" : "is processed; the declared fronts have not all joined";
  }
  const short = last.freshness.find((window) => window.seconds === 300);
  const facts = [
    ["State", last.complete ? "complete" : stuck.length ? `${plural(stuck.length, "segment")} stuck` : last.begun ? "moving" : "waits for fronts", stuck.length > 0],
    ["Behind the fronts", slotsText(last.lag_slots, last.lag_ms)],
    ["Behind the clock", last.complete ? "–" : span(last.age_ms)],
    ["Lag of 5 min, p99", short ? span(short.p99_ms) : "–"],
    ["Open items", count(last.segments.reduce((sum, segment) => sum + Math.max(0, segment.open_items), 0))],
  ];
  if (last.late_items) facts.push(["Late items", count(last.late_items), true]);
  if (last.written_off_items) facts.push(["Written off", count(last.written_off_items), true]);
  if (last.generation) facts.push(["Restarts", count(last.generation)]);
  $("facts").replaceChildren(...facts.map(([name, value, bad]) =>
    element("div", {}, element("dt", {}, name), element("dd", { class: bad ? "bad" : null }, value))));
  $("under-way").hidden = !last.changes.length;
  $("under-way").replaceChildren(...last.changes.map((text) => element("li", {}, text)));
  const now = stuck.length ? `stuck: ${stuck.map((each) => each.segment).join(", ")}` : last.complete ? "complete" : "moving";
  if (told && told !== now) $("changes").textContent = `The pipeline is ${now}`;
  told = now;
}

function why() {
  const segment = last.segments.find((each) => each.segment === chosen);
  if (!segment) return $("why").replaceChildren();
  const heading = element("h3", {}, `${segment.segment}: ${stateText(segment.state).slice(2)} `,
    element("a", { class: "share", href: overview.address(pipeline, segment.segment), "data-key": "share" }, "link to this segment"));
  if (segment.complete) return $("why").replaceChildren(heading);
  const parts = [heading, element("p", {}, `min time ${segment.text}, for ${span(segment.standing_ms)}`)];
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
    const found = await ask(`pipelines/${encodeURIComponent(asked)}/lags`);
    if (asked === pipeline) hour = found;
  } catch (error) {
    return; // the looks say what is wrong
  }
  plotHour();
}

function plotHour() {
  if (!hour || !last) return $("hour").replaceChildren();
  if (hour.why || !hour.segments.length) return $("hour").replaceChildren(hour.why ? element("p", { class: "empty" }, hour.why) : "");
  const of = (name) => hour.segments.find((each) => each.segment === name);
  const one = of(chosen);
  $("hour").replaceChildren(plot([
    { ...of(null), name: "whole pipeline", is: "whole" }, ...(one ? [{ ...one, name: one.segment, is: "chosen" }] : []),
  ], hour.seconds));
}

function fresh() {
  const of = (windows, seconds, key) => {
    const window = windows.find((each) => each.seconds === seconds);
    return number(window ? span(window[key]) : "–");
  };
  table("fresh", ["Segment", number("now"), number("5 min p50"), number("p95"), number("p99"), number("1 h p50"), number("p95"), number("p99")],
    [...last.segments, { ...last, segment: "whole pipeline" }].map((each) => [
      each.segment, number(slotsText(each.lag_slots, each.lag_ms)),
      ...[300, 3600].flatMap((seconds) => ["p50_ms", "p95_ms", "p99_ms"].map((key) => of(each.freshness, seconds, key))),
    ]), "", last.more_segments);
}

const SILENT_MS = 15000;

function fronts() {
  table("fronts", ["Front", "Feeds", "Promises", number("Behind"), number("Silent")], [
    ...last.missing_fronts.map((front) => [front, "–", { text: "has not joined", is: "warn" }, number("–"), number("–")]),
    ...last.fronts.map((front) => [
      front.front === front.node_id ? front.front : `${front.node_id}/${front.front}`, front.segment,
      front.settled ? { text: front.text || "nothing yet", is: "time" } : { text: "joins or leaves", is: "warn" },
      number(slotsText(front.behind_slots, front.behind_ms)), silent(front.silent_ms, SILENT_MS),
    ]),
  ], last.complete ? "All fronts have left." : "No front has joined.", last.more_fronts);
}

const ROLES = { owner: "serves", spare: "owns nothing yet", joining: "joins", draining: "drains", leaving: "leaves" };

function shardState(shard) {
  if (shard.role === "joining") return { text: ROLES.joining, is: "warn" };
  if (!shard.answers) return { text: "does not answer", is: "bad" };
  if (!shard.connected) return { text: "cut off", is: "bad" };
  return { text: ROLES[shard.role] || ROLES.owner, is: shard.role === "owner" ? "good" : "warn" };
}

function shards() {
  table("shards", ["Shard", "Address", "State", number("Behind"), "Store"], last.shards.map((shard) => [
    String(shard.shard), { text: shard.address, is: "time" },
    shardState(shard),
    number(count(shard.entries_behind)),
    !shard.answers ? "–" : shard.store_error || shard.store_waiting_ms > 1000
      ? { text: `takes nothing for ${span(shard.store_waiting_ms)}${shard.store_error ? `: ${shard.store_error}` : ""}`, is: "bad" }
      : { text: "takes writes", is: "good" },
  ]), "No shard answers.");
}

function nodeState(node) {
  if (node.gone) return { text: node.gone, is: "bad" };
  if (node.refused) return { text: `refused: ${node.refused}`, is: "bad" };
  if (node.waits.length) return { text: "waits", is: "bad" };
  const staged = node.staged.map((each) => `batch ${each.batch} of ${each.query}`).join(", ");
  const state = node.connected ? "connected" : "not connected";
  return { text: staged ? `${state}, ${staged} staged` : state, is: node.connected ? "good" : "bad" };
}

function nodes() {
  table("nodes", ["Node", "Kind", "State", "Waits for", number("Silent"), number("Ticks"), "Consumes from", "Creates in"], last.nodes.map((node) => [
    node.node_id, node.kind, nodeState(node),
    [...node.waits, ...node.holds].join("; ") || "–",
    silent(node.silent_ms, SILENT_MS), number(count(node.node_time)), node.consumes.join(", ") || "–", node.creates.join(", ") || "–",
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
