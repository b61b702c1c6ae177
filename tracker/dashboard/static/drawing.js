// Drawing: the graph of segments, the strips of slots, and lags over time. Names come from people: they become text
// nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function span(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  for (const [size, unit] of [[86400e3, "d"], [3600e3, "h"], [60e3, "min"]]) {
    if (ms >= 2 * size) return `${(ms / size).toFixed(1)} ${unit}`;
  }
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

// So many slots: as a time, or as their number where they last none (slots and ms as looks tell them).
export const slotsText = (slots, ms) => (ms === null && slots !== null ? plural(slots, "slot") : span(ms));

export const count = (number) => number.toLocaleString("en");
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export const STATES = { complete: "✓ complete", moving: "▸ moving", waiting: "… waits for fronts", stuck: "! stuck" };
export const stateText = (state) => STATES[state];

// --- the graph -----------------------------------------------------------------------------------

const BOX = { width: 198, height: 92, across: 44, along: 22 };
const FRONT = { width: 128, height: 44 };
const MAX_FRONT_BOXES = 8;
const MAX_CHARACTERS = 24;

const short = (text, most = MAX_CHARACTERS) =>
  [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;

// Ranks by the longest way from a source; ways back in a cycle are left out of it.
function rank(names, edges) {
  const into = new Map(names.map((name) => [name, []]));
  const out = new Map(names.map((name) => [name, []]));
  for (const { source, target } of edges) out.get(source).push(target);
  const state = new Map();
  const visit = (start) => {
    const path = [[start, 0]];
    state.set(start, "open");
    while (path.length) {
      const top = path[path.length - 1];
      const next = out.get(top[0])[top[1]++];
      if (next === undefined) {
        state.set(path.pop()[0], "done");
      } else if (state.get(next) !== "open") {
        into.get(next).push(top[0]);
        if (!state.has(next)) {
          state.set(next, "open");
          path.push([next, 0]);
        }
      }
    }
  };
  const fed = new Set(edges.map(({ target }) => target));
  for (const name of names) if (!fed.has(name)) visit(name);
  for (const name of names) if (!state.has(name)) visit(name);
  const ranks = new Map();
  const rankOf = (name) => {
    if (!ranks.has(name)) {
      ranks.set(name, 0);
      ranks.set(name, Math.max(0, ...into.get(name).map((source) => rankOf(source) + 1)));
    }
    return ranks.get(name);
  };
  names.forEach(rankOf);
  return ranks;
}

function frontBoxes(look) {
  const fronts = [
    ...look.fronts.map((front) => ({ ...front, missing: false })),
    ...look.missing_fronts.map((front) => ({ front, missing: true, segment: null })),
  ];
  if (fronts.length <= MAX_FRONT_BOXES) return fronts;
  const kept = fronts.slice(0, MAX_FRONT_BOXES - 1);
  return [...kept, { front: `${fronts.length - kept.length} more`, segment: null, missing: false, more: true }];
}

// Where everything stands: from left to right, or from top to bottom where there is no room.
function place(look, width) {
  const names = look.segments.map((each) => each.segment);
  const ranks = rank(names, look.edges);
  const fronts = frontBoxes(look);
  const columns = [fronts.map((front) => ({ front })), ];
  for (const segment of look.segments) {
    const at = ranks.get(segment.segment) + 1;
    (columns[at] ??= []).push({ segment });
  }
  const filled = columns.filter((column) => column && column.length);
  const wide = filled.reduce((sum, c) => sum + (c[0].front ? FRONT.width : BOX.width) + BOX.across, -BOX.across);
  const upright = wide + 8 > width;
  const places = new Map();
  let total = { width: 0, height: 0 };
  if (!upright) {
    const heights = filled.map((c) => c.reduce((h, box) => h + sizeOf(box).height + BOX.along, -BOX.along));
    const height = Math.max(...heights);
    let x = 4;
    filled.forEach((column, number) => {
      let y = 4 + (height - heights[number]) / 2;
      for (const box of column) {
        places.set(keyOf(box), { ...sizeOf(box), x, y, box });
        y += sizeOf(box).height + BOX.along;
      }
      x += sizeOf(column[0]).width + BOX.across;
    });
    total = { width: x - BOX.across + 4, height: height + 8 };
  } else {
    let y = 4;
    const room = Math.max(width, BOX.width + 8);
    for (const column of filled) {
      const size = sizeOf(column[0]);
      const perRow = Math.max(1, Math.floor((room - 8 + BOX.along) / (size.width + BOX.along)));
      for (let first = 0; first < column.length; first += perRow) {
        const row = column.slice(first, first + perRow);
        let x = (room - row.length * (size.width + BOX.along) + BOX.along) / 2;
        for (const box of row) {
          places.set(keyOf(box), { ...size, x, y, box });
          x += size.width + BOX.along;
        }
        y += size.height + (first + perRow < column.length ? BOX.along / 2 : 34);
      }
    }
    total = { width: room, height: y - 30 };
  }
  return { places, upright, ...total };
}

const sizeOf = (box) => (box.front ? FRONT : { width: BOX.width, height: BOX.height });
const keyOf = (box) => (box.front ? `front ${box.front.node_id ?? ""} ${box.front.front}` : `segment ${box.segment.segment}`);

function edgePath(from, to, upright, between) {
  if (between) {
    // Another box is in the way: past it, on the right.
    const x = Math.max(from.x + from.width, to.x + to.width), out = Math.max(x, between) + 22;
    const y1 = from.y + from.height / 2, y2 = to.y + to.height / 2;
    return `M${from.x + from.width} ${y1} C ${out} ${y1}, ${out} ${y1}, ${out} ${y1 + 22} L ${out} ${y2 - 22} C ${out} ${y2}, ${out} ${y2}, ${to.x + to.width} ${y2}`;
  }
  if (from === to) {
    const x = from.x + from.width - 30, y = from.y;
    return `M${x} ${y} c 0 -24, 26 -24, 22 0`;
  }
  const [a, b] = upright
    ? [[from.x + from.width / 2, from.y + from.height], [to.x + to.width / 2, to.y]]
    : [[from.x + from.width, from.y + from.height / 2], [to.x, to.y + to.height / 2]];
  const back = upright ? to.y <= from.y : to.x <= from.x;
  if (back) {
    // A way back in a cycle: round the outside.
    if (upright) {
      const x = Math.max(from.x + from.width, to.x + to.width), out = x + 26;
      return `M${from.x + from.width} ${from.y + from.height / 2} C ${out} ${from.y}, ${out} ${to.y + to.height}, ${to.x + to.width} ${to.y + to.height / 2}`;
    }
    const under = Math.max(from.y + from.height, to.y + to.height) + 16;
    return `M${from.x + from.width / 2} ${from.y + from.height} C ${from.x} ${under}, ${to.x + to.width} ${under}, ${to.x + to.width / 2} ${to.y + to.height}`;
  }
  const bend = upright ? Math.max(16, (b[1] - a[1]) / 2) : Math.max(24, (b[0] - a[0]) / 2);
  return upright
    ? `M${a[0]} ${a[1]} C ${a[0]} ${a[1] + bend}, ${b[0]} ${b[1] - bend}, ${b[0]} ${b[1]}`
    : `M${a[0]} ${a[1]} C ${a[0] + bend} ${a[1]}, ${b[0] - bend} ${b[1]}, ${b[0]} ${b[1]}`;
}

export function graph(look, chosen, width, choose) {
  const drawn = place(look, width);
  const extra = look.edges.some(({ source, target }) => back(drawn, source, target)) ? 26 : 0;
  const svg = shape("svg", {
    width: drawn.width + (drawn.upright ? extra : 0), height: drawn.height + (drawn.upright ? 0 : extra),
    role: "group", "aria-label": `${plural(look.segments.length, "segment")} and how they feed each other`,
  });
  svg.append(shape("defs", {}, shape("marker", {
    id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
  }, shape("path", { d: "M0 0L8 4L0 8z", class: "arrow" }))));
  for (const { source, target, delay } of look.edges) {
    const from = drawn.places.get(`segment ${source}`), to = drawn.places.get(`segment ${target}`);
    const d = edgePath(from, to, drawn.upright, inTheWay(drawn, from, to));
    svg.append(shape("path", { class: "edge", d, "marker-end": "url(#arrow)" },
      shape("title", {}, `${source} feeds ${target}${delay ? `, ${delay} slots later` : ""}`)));
  }
  for (const at of drawn.places.values()) {
    if (at.box.front?.segment) {
      const to = drawn.places.get(`segment ${at.box.front.segment}`);
      if (to) {
        const d = edgePath(at, to, drawn.upright, inTheWay(drawn, at, to));
        svg.append(shape("path", { class: "edge", d, "marker-end": "url(#arrow)" }));
      }
    }
  }
  for (const at of drawn.places.values()) {
    svg.append(at.box.front ? frontBox(at) : segmentBox(at, at.box.segment.segment === chosen, choose));
  }
  return svg;
}

// How far to the right the boxes reach that stand between two others, one above the other; 0 if none does.
function inTheWay(drawn, from, to) {
  if (!drawn.upright || to.y <= from.y) return 0;
  const left = Math.min(from.x, to.x), right = Math.max(from.x + from.width, to.x + to.width);
  const inside = [...drawn.places.values()].filter((at) =>
    at.y >= from.y + from.height && at.y + at.height <= to.y && at.x < right && at.x + at.width > left);
  return inside.length ? Math.max(right, ...inside.map((at) => at.x + at.width)) : 0;
}

function back(drawn, source, target) {
  const from = drawn.places.get(`segment ${source}`), to = drawn.places.get(`segment ${target}`);
  return drawn.upright ? to.y <= from.y : to.x <= from.x;
}

function frontBox(at) {
  const { front } = at.box;
  const below = front.more ? "" : front.missing ? "has not joined" : `silent ${span(front.silent_ms)}`;
  return shape("g", { class: "front", transform: `translate(${at.x} ${at.y})` },
    shape("rect", { class: "box", width: at.width, height: at.height, rx: 22 }),
    shape("text", { x: at.width / 2, y: 19, "text-anchor": "middle" }, short(front.front, 15)),
    shape("text", { x: at.width / 2, y: 35, "text-anchor": "middle", class: "soft" }, below),
    shape("title", {}, front.more ? `${front.front} fronts` : `front ${front.front}${front.segment ? `, feeds ${front.segment}` : ""}`));
}

function segmentBox(at, isChosen, choose) {
  const { segment } = at.box;
  const open = segment.open_slots ? `${plural(segment.open_items, "item")} open` : "nothing open";
  const lag = segment.lag_slots === null ? "" : `lag ${slotsText(segment.lag_slots, segment.lag_ms)}`;
  const group = shape("g", {
    class: `segment ${segment.state}${segment.removed ? " removed" : ""}${isChosen ? " chosen" : ""}`, transform: `translate(${at.x} ${at.y})`,
    tabindex: isChosen ? 0 : -1, role: "button", "aria-pressed": isChosen, "data-key": `segment ${segment.segment}`,
    "aria-label": `segment ${segment.segment}: ${segment.state}${segment.removed ? ", removed" : ""}, min time ${segment.text}, ${lag}, ${open}`,
  },
    shape("rect", { class: "box", width: at.width, height: at.height, rx: 9 }),
    shape("rect", { class: "bar", x: 0, y: 10, width: 4, height: at.height - 20, rx: 2 }),
    shape("text", { x: 15, y: 24, class: "name" }, short(segment.segment, 22)),
    shape("text", { x: 15, y: 43 }, segment.text),
    shape("text", { x: 15, y: 61, class: "soft" }, [lag, open].filter(Boolean).join(" · ")),
    shape("text", { x: 15, y: 80, class: "state" }, segment.removed ? `${STATES[segment.state]}, removed` : STATES[segment.state]),
    shape("title", {}, segment.segment));
  group.addEventListener("click", () => choose(segment.segment));
  return group;
}

// --- strips of slots -----------------------------------------------------------------------------

const STRIP_HEIGHT = 34;

export function strip(look) {
  if (!look.strip) {
    return element("p", { class: "empty" }, look.complete ? "Everything is complete: nothing is open." : "No front has promised anything yet.");
  }
  const all = element("div");
  const most = Math.max(1, ...look.strip.segments.flatMap((row) => row.cells));
  for (const row of look.strip.segments) {
    const bins = row.cells.length;
    const openSlots = row.cells.reduce((sum, cells) => sum + cells, 0);
    const openItems = row.items.reduce((sum, items) => sum + items, 0);
    const text = openSlots ? `${plural(openItems, "item")} in ${plural(openSlots, "slot")}` : "nothing open";
    const svg = shape("svg", {
      viewBox: `0 0 ${bins} ${STRIP_HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${row.segment}: ${text}, between ${look.strip.from_text} and ${look.strip.to_text}; complete for ${Math.round(100 * row.done)} % of it`,
    }, shape("rect", { class: "strip-done", x: 0, y: 0, width: row.done * bins, height: STRIP_HEIGHT }));
    row.cells.forEach((cells, bin) => {
      if (!cells) return;
      const height = 6 + (STRIP_HEIGHT - 8) * Math.log1p(cells) / Math.log1p(most);
      svg.append(shape("rect", { class: "strip-open", x: bin + 0.08, y: STRIP_HEIGHT - height, width: 0.84, height },
        shape("title", {}, `${plural(row.items[bin], "item")} in ${plural(cells, "slot")}`)));
    });
    if (row.done > 0 && row.done < 1) {
      svg.append(shape("line", { class: "strip-mark", x1: row.done * bins, x2: row.done * bins, y1: 0, y2: STRIP_HEIGHT }));
    }
    all.append(element("div", { class: "strip-row" },
      element("div", { class: "label", title: row.segment }, row.segment), svg, element("div", { class: "count" }, text)));
  }
  all.append(
    element("div", { class: "strip-axis", "aria-hidden": "true" }, element("div"),
      element("div", {}, element("span", {}, look.strip.from_text), element("span", {}, look.strip.to_text)), element("div")),
    element("p", { class: "legend" },
      element("span", {}, element("i", { class: "of-done" }), "complete"),
      element("span", {}, element("i", { class: "of-mark" }), "min time"),
      element("span", {}, element("i", { class: "of-open" }), "slots with open items"),
      element("span", {}, `a bar is ${slotsText(look.strip.bin_slots, look.strip.bin_ms)} wide`)));
  return all;
}

// --- lags over time ------------------------------------------------------------------------------

// What is known of a lag, as lines: broken where there was nothing to compare (below 0).
function lines(lags, most, width, height, bottom) {
  const path = [];
  let drawing = false;
  lags.forEach((lag, place) => {
    if (lag >= 0) {
      const x = lags.length > 1 ? place * width / (lags.length - 1) : 0;
      path.push(`${drawing ? "L" : "M"}${x.toFixed(1)} ${(bottom - lag * height / most).toFixed(1)}`);
      if (!drawing && !(lags[place + 1] >= 0)) path.push("m-4 0h4"); // one point alone
    }
    drawing = lag >= 0;
  });
  return path.join("");
}

const known = (lags) => lags.filter((lag) => lag >= 0);

// One small line.
export function chart(lags) {
  if (!known(lags).length) return "–";
  const most = Math.max(1, ...known(lags));
  return shape("svg", { class: "sparkline", viewBox: "0 0 120 26", width: 120, height: 26, role: "img", "aria-label": `lag over the last hour: at most ${span(most)}, now ${span(known(lags).at(-1))}` },
    shape("path", { d: lines(lags, most, 118, 20, 23) }), shape("title", {}, `at most ${span(most)}`));
}

const PLOT = { width: 1000, height: 160 };

// The hour of some series of one length: each with a name, lags_ms, and the class of its line.
export function plot(series, seconds) {
  const most = Math.max(0, ...series.flatMap((each) => known(each.lags_ms)));
  if (!series.some((each) => known(each.lags_ms).length)) return element("p", { class: "empty" }, "No sample yet: one is taken each 12 seconds.");
  const told = series.map((each) => `${each.name} at most ${span(Math.max(0, ...known(each.lags_ms)))}`).join(", ");
  const svg = shape("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, preserveAspectRatio: "none", role: "img", "aria-label": `lag over the last ${span(1000 * seconds)}: ${told}` },
    ...[0.25, 0.5, 0.75].map((part) => shape("line", { class: "grid", x1: 0, x2: PLOT.width, y1: part * PLOT.height, y2: part * PLOT.height })),
    ...series.map((each) => shape("path", { class: each.is, d: lines(each.lags_ms, Math.max(1, most), PLOT.width, PLOT.height - 10, PLOT.height - 4) }, shape("title", {}, each.name))));
  return element("div", { class: "plot" },
    element("p", { class: "most" }, `at most ${span(most)}`), svg,
    element("div", { class: "plot-axis", "aria-hidden": "true" }, element("span", {}, `${span(1000 * seconds)} ago`), element("span", {}, "now")),
    element("p", { class: "legend" }, ...series.map((each) => element("span", {}, element("i", { class: `of-${each.is}` }), each.name))));
}
