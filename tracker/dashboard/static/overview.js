// The first page: all pipelines, the worst first, with a search. Names come from people: they become text nodes and
// attributes, never markup.

import { ask } from "/asking.js";
import { chart, count, element, plural, slotsText, STATES } from "/drawing.js";

const $ = (id) => document.getElementById(id);
const INTERVAL_MS = 2000;

let timer = 0;
let asked = 0;
let first = 0;
let told = null;

// Shows all pipelines until `stop`; `heard` is told of each answer, and of what is wrong.
export function start(heard) {
  stop();
  const mine = asked;
  const turn = async () => {
    try {
      const query = new URLSearchParams({ search: $("search").value, offset: first });
      const page = await ask(`pipelines?${query}`);
      if (mine !== asked) return;
      if (page.found && page.offset >= page.found) {
        first = 0;
        return again(0);
      }
      told = page;
      heard(page, page.trouble);
      show();
    } catch (error) {
      if (mine === asked) heard(null, `The tracker does not answer: ${error.message}`);
    }
    if (mine === asked) again(INTERVAL_MS);
  };
  const again = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(turn, ms);
  };
  $("search").oninput = () => {
    first = 0;
    again(200);
  };
  for (const [id, step] of [["earlier", -1], ["later", 1]]) {
    $(id).onclick = () => {
      first = Math.max(0, first + step * told.page_size);
      again(0);
    };
  }
  turn();
}

export function stop() {
  asked += 1;
  clearTimeout(timer);
}

function show() {
  const { pipelines, found, all, states, more } = told;
  $("states").replaceChildren(...Object.entries(states).filter(([, number]) => number).map(([state, number]) =>
    element("span", { class: `state-${state}` }, `${count(number)} ${state}`)),
    ...(more ? [element("span", {}, `and ${count(more)} more that are not kept`)] : []));
  const focused = document.activeElement?.dataset?.key;
  if (!all) $("all-rows").replaceChildren(element("p", { class: "empty" }, "No pipeline is registered yet: lowmark pipelines apply -f pipeline.yaml"));
  else if (!found) $("all-rows").replaceChildren(element("p", { class: "empty" }, "No pipeline, and no segment of one, has that in its name."));
  else $("all-rows").replaceChildren(rows(pipelines));
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  const last = told.offset + pipelines.length;
  $("place").textContent = found > pipelines.length ? `${count(told.offset + 1)} to ${count(last)} of ${count(found)}` : plural(found, "pipeline");
  $("earlier").disabled = told.offset === 0;
  $("later").disabled = last >= found;
  $("earlier").hidden = $("later").hidden = found <= pipelines.length;
}

function rows(pipelines) {
  const heads = [["Pipeline", null], ["State", null], ["Min time", null], ["Behind", "number"], ["Last hour", null], ["Held by", null]];
  return element("table", { class: "all" },
    element("thead", {}, element("tr", {}, ...heads.map(([head, is]) => element("th", { scope: "col", class: is }, head)))),
    element("tbody", {}, ...pipelines.map((each) => element("tr", { class: each.state },
      element("td", { class: "name" }, element("a", { href: address(each.pipeline), "data-key": `pipeline ${each.pipeline}` }, each.pipeline)),
      element("td", { class: `state-${each.state}` }, STATES[each.state]),
      element("td", { class: "time" }, each.text),
      element("td", { class: "number" }, slotsText(each.lag_slots, each.lag_ms)),
      element("td", { class: "chart" }, chart(each.lags_ms)),
      element("td", { title: each.advice || null }, each.holds || "–")))));
}

// Where a pipeline is shown, and one of its segments: to be sent to somebody.
export function address(pipeline, segment = null) {
  const given = new URLSearchParams({ pipeline });
  if (segment !== null) given.set("segment", segment);
  return `#${given}`;
}
