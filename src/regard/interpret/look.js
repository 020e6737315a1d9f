"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("look");
  const state = { view: 0, layer: 0, head: 0, mode: "map", unit: "words", row: 0, tile: [0, 0], token: 0 };

  // ------------------------------------------------------------------------------------------------- small tools

  /** An element; strings become text, never markup. */
  function el(name, props, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(props || {})) {
      if (value === null || value === undefined) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "class") node.className = value;
      else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else node.setAttribute(key, value);
    }
    node.append(...children.filter((c) => c !== null && c !== undefined));
    return node;
  }
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const shorts = (text) => new Uint16Array(bytes(text).buffer);
  const show = (label) => label.replaceAll("▁", " ").trim() || "␣";
  const number = (x, digits = 2) => (x === null || x === undefined ? "" : x.toFixed(digits));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** Weights of a head as {n, m, values}; of a head that is not exact, only the largest of each row. */
  function matrix(head, [n, m]) {
    if (head.weights) return { n, m, values: floats(head.weights) };
    const values = new Float32Array(n * m), count = head.largest_count;
    const at = shorts(head.largest_at), largest = shorts(head.largest);
    for (let i = 0; i < n; i++) for (let k = 0; k < count; k++) values[i * m + at[i * count + k]] = largest[i * count + k] / 65535;
    return { n, m, values };
  }
  /** Weights between words: the mean over the tokens that look, the sum over those that are looked at. */
  function join({ n, m, values }, rows, columns) {
    const N = Math.max(...rows) + 1, M = Math.max(...columns) + 1, out = new Float32Array(N * M), size = new Float32Array(N);
    for (let i = 0; i < n; i++) {
      size[rows[i]] += 1;
      for (let j = 0; j < m; j++) out[rows[i] * M + columns[j]] += values[i * m + j];
    }
    for (let i = 0; i < N; i++) for (let j = 0; j < M; j++) out[i * M + j] /= size[i];
    return { n: N, m: M, values: out };
  }
  const view = () => data.views[state.view];
  const layer = () => view().layers[state.layer];
  const head = () => (state.head < 0 ? layer().mean : layer().heads[state.head]);

  /** What is shown of a head: the matrix and the labels of both sides, by words or by tokens. */
  function shown(one) {
    const l = layer(), raw = matrix(one, l.shape);
    const sides = [l.queries, l.keys];
    if (state.unit === "words" && !l.columns) {
      const [rows, columns] = sides.map((side) => view().words[side]);
      return { ...join(raw, rows.owner, columns.owner), rows: rows.text, columns: columns.text };
    }
    return { ...raw, rows: l.rows || view().labels[l.queries], columns: l.columns || view().labels[l.keys] };
  }

  // ------------------------------------------------------------------------------------------------- maps

  function paint(canvas, { n, m, values }, cell) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(m * cell * scale));
    canvas.height = Math.max(1, Math.round(n * cell * scale));
    canvas.style.width = `${m * cell}px`;
    canvas.style.height = `${n * cell}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.fillStyle = css("--accent");
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        const weight = values[i * m + j];
        if (weight < 0.004) continue;
        pen.globalAlpha = Math.min(1, Math.pow(weight, 0.7));
        pen.fillRect(j * cell, i * cell, cell > 4 ? cell - 1 : cell, cell > 4 ? cell - 1 : cell);
      }
    }
  }
  function small(one, shape) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    if (one.weights) paint(canvas, matrix(one, shape), 48 / Math.max(...shape));
    else {
      const [n, m] = one.thumbnail_shape;
      const values = Float32Array.from(bytes(one.thumbnail), (v) => v / 255);
      paint(canvas, { n, m, values }, 48 / Math.max(n, m));
    }
    return canvas;
  }

  // ------------------------------------------------------------------------------------------------- overview

  let grid = [];
  function overview() {
    grid = [];
    const rows = view().layers.map((l, i) => {
      const cells = l.heads.map((one, h) => {
        const button = el("button", {
          class: "thumb", type: "button", tabindex: "-1", "aria-label": `${l.title}, head ${h + 1}`, title: `${l.title}, head ${h + 1}`,
          onclick: () => choose(i, h),
          onkeydown: (event) => {
            const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
            if (!step) return;
            event.preventDefault();
            const next = grid[i + step[0]] && grid[i + step[0]][Math.min(h + step[1], grid[i + step[0]].length - 1)];
            if (next) { next.focus(); next.click(); }
          },
        }, small(one, l.shape));
        return button;
      });
      grid.push(cells);
      return el("div", { class: "layer", role: "group", "aria-label": l.title }, el("span", { class: "note" }, short(l)), ...cells);
    });
    return el("div", { class: "overview" }, ...rows);
  }
  const short = (l) => l.title.replace("encoder layer ", "enc ").replace("decoder layer ", "dec ")
    .replace(", self-attention", "").replace(", cross-attention", " ×");

  function choose(i, h) {
    state.layer = i; state.head = h; state.row = 0;
    draw();
  }

  // ------------------------------------------------------------------------------------------------- one head

  /** A part of a matrix, with its labels. */
  function cut(found, top, left, side) {
    const n = Math.min(side, found.n - top), m = Math.min(side, found.m - left), values = new Float32Array(n * m);
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) values[i * m + j] = found.values[(top + i) * found.m + left + j];
    return { n, m, values, rows: found.rows.slice(top, top + n), columns: found.columns.slice(left, left + m) };
  }
  const TILE = 40;
  /** A long map: the largest weight of every tile, and the chosen tile below with all its weights. */
  function tiledMap(found, tip) {
    const N = Math.ceil(found.n / TILE), M = Math.ceil(found.m / TILE), values = new Float32Array(N * M);
    for (let i = 0; i < found.n; i++) for (let j = 0; j < found.m; j++) {
      const at = Math.floor(i / TILE) * M + Math.floor(j / TILE);
      values[at] = Math.max(values[at], found.values[i * found.m + j]);
    }
    const cell = Math.max(6, Math.min(24, Math.floor(480 / Math.max(N, M))));
    const canvas = el("canvas", { class: "tiles", tabindex: "0", role: "img", "aria-label": `${N} by ${M} tiles of ${TILE} by ${TILE} weights; arrow keys choose one` });
    paint(canvas, { n: N, m: M, values }, cell);
    const detail = el("div"), label = el("p", { class: "note" });
    const choose = (i, j) => {
      state.tile = [Math.max(0, Math.min(N - 1, i)), Math.max(0, Math.min(M - 1, j))];
      const [top, left] = state.tile.map((k) => k * TILE);
      label.textContent = `Rows ${top + 1} to ${Math.min(top + TILE, found.n)}, columns ${left + 1} to ${Math.min(left + TILE, found.m)} of ${found.n} × ${found.m}; each square above is the largest weight of ${TILE} × ${TILE}.`;
      detail.replaceChildren(headMap(cut(found, top, left, TILE), tip));
    };
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      choose(Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell));
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(state.tile[0] + step[0], state.tile[1] + step[1]);
    });
    choose(...state.tile);
    return el("div", {}, canvas, label, detail);
  }

  /** The picture that a vision model reads, with what one token looks at drawn over its patches. */
  function overPicture(found, tip) {
    const p = view().picture, cell = Math.max(8, Math.floor(420 / Math.max(p.rows, p.columns)));
    const canvas = el("canvas", { class: "patches", tabindex: "0", role: "img", "aria-label": `${p.rows} by ${p.columns} patches; arrow keys choose the one that looks` });
    const image = el("img", { src: p.source, alt: "what the model reads", style: { width: `${p.columns * cell}px`, height: `${p.rows * cell}px` } });
    const mark = el("div", { class: "patch", style: { width: `${cell}px`, height: `${cell}px` } });
    const first = el("button", { type: "button", class: "link", onclick: () => look(0) }, "from the class token");
    const look = (token) => {
      state.token = Math.max(0, Math.min(found.n - 1, token));
      const row = found.values.subarray(state.token * found.m, (state.token + 1) * found.m);
      const top = Math.max(1e-9, ...row.slice(p.first));
      paint(canvas, { n: p.rows, m: p.columns, values: row.slice(p.first).map((v) => v / top) }, cell);
      const place = state.token - p.first;
      mark.hidden = place < 0;
      mark.style.left = `${(place % p.columns) * cell}px`;
      mark.style.top = `${Math.floor(place / p.columns) * cell}px`;
      const best = row.indexOf(Math.max(...row));
      tip.textContent = `${place < 0 ? "class token" : `patch ${show(found.rows[state.token])}`} looks most at ${best < p.first ? "the class token" : `patch ${show(found.columns[best])}`}: ${number(row[best], 3)}; the darkest patch has ${number(top, 3)}`;
    };
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      look(p.first + Math.floor((event.clientY - box.top) / cell) * p.columns + Math.floor((event.clientX - box.left) / cell));
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: p.columns, ArrowUp: -p.columns }[event.key];
      if (!step) return;
      event.preventDefault();
      look(state.token + step);
    });
    look(Math.min(state.token, found.n - 1));
    return el("div", {}, el("div", { class: "picture" }, image, canvas, mark), p.first ? first : null);
  }

  /** Hashed attention: which tokens share a bucket in each round. */
  function buckets() {
    const l = layer();
    if (!l.buckets || state.head < 0) return null;
    const words = view().labels[l.queries];
    const rounds = l.buckets[state.head].map((round) => {
      const names = [...new Set(round)].sort((a, b) => a - b);
      return el("tr", {}, el("td", {}, el("span", { class: "spread" }, ...round.map((b, i) =>
        el("span", { class: "bucket", title: `bucket ${b}`, style: { "--hue": String(Math.round((360 * names.indexOf(b)) / names.length)) } }, el("bdi", {}, show(words[i]))))))); 
    });
    return el("div", {}, el("h3", {}, "Buckets of this head"),
      el("p", { class: "note" }, "Tokens of one color fell into the same bucket, one line for each round of hashing; a token attends to those of its bucket."),
      el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, ...rounds))));
  }

  function headMap(found, tip) {
    if (Math.max(found.n, found.m) > 3 * TILE) return tiledMap(found, tip);
    const cell = Math.max(2, Math.min(24, Math.floor(600 / Math.max(found.m, 1)), Math.floor(900 / Math.max(found.n, 1)) || 2));
    const readable = cell >= 11;
    const canvas = el("canvas", { class: "map", tabindex: "0", role: "img", "aria-label": `Map of ${found.n} by ${found.m} weights; arrow keys read them` });
    paint(canvas, found, cell);
    let at = [0, 0];
    const tell = (i, j) => {
      at = [Math.max(0, Math.min(found.n - 1, i)), Math.max(0, Math.min(found.m - 1, j))];
      const weight = found.values[at[0] * found.m + at[1]];
      tip.textContent = `${show(found.rows[at[0]])} → ${show(found.columns[at[1]])}: ${number(weight, 3)}`;
    };
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      tell(Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell));
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      tell(at[0] + step[0], at[1] + step[1]);
    });
    const column = el("div", { class: "columns", style: { "grid-template-columns": `repeat(${found.m}, ${cell}px)` } },
      ...(readable ? found.columns.map((c) => el("span", {}, el("bdi", {}, show(c)))) : []));
    const row = el("div", { class: "rows", style: { "grid-auto-rows": `${cell}px` } },
      ...(readable ? found.rows.map((r) => el("span", {}, el("bdi", {}, show(r)))) : []));
    return el("div", { class: "mapbox" }, el("span"), column, row, canvas);
  }

  function headLines(found, tip) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const left = el("div", { class: "side" }), right = el("div", { class: "side" });
    const box = el("div", { class: "lines" }, left, svg, right);
    const rows = [], columns = [];
    const height = 24;
    let pinned = -1;
    function lines(only) {
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 200 ${Math.max(found.n, found.m) * height}`);
      svg.style.height = `${Math.max(found.n, found.m) * height}px`;
      columns.forEach((node) => node.style.setProperty("--shade", 0));
      for (let i = 0; i < found.n; i++) {
        if (only >= 0 && i !== only) continue;
        if (only < 0 && found.n > 96) continue;
        for (let j = 0; j < found.m; j++) {
          const weight = found.values[i * found.m + j];
          if (only >= 0) columns[j].style.setProperty("--shade", Math.sqrt(weight));
          if (weight < (only >= 0 ? 0.01 : 0.08)) continue;
          const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
          for (const [key, value] of Object.entries({ x1: 0, x2: 200, y1: (i + 0.5) * height, y2: (j + 0.5) * height })) line.setAttribute(key, value);
          line.style.opacity = Math.min(1, weight * 1.2);
          svg.append(line);
        }
      }
      rows.forEach((node, i) => node.classList.toggle("on", i === only));
      if (only >= 0) {
        const best = [...Array(found.m).keys()].sort((a, b) => found.values[only * found.m + b] - found.values[only * found.m + a]).slice(0, 3);
        tip.textContent = `${show(found.rows[only])} → ${best.map((j) => `${show(found.columns[j])} ${number(found.values[only * found.m + j])}`).join(", ")}`;
      }
    }
    found.rows.forEach((label, i) => {
      const node = el("button", { type: "button", onmouseenter: () => lines(i), onmouseleave: () => lines(pinned), onfocus: () => lines(i),
        onclick: () => { pinned = pinned === i ? -1 : i; lines(pinned); } }, el("bdi", {}, show(label)));
      rows.push(node); left.append(node);
    });
    found.columns.forEach((label) => { const node = el("span", {}, el("bdi", {}, show(label))); columns.push(node); right.append(node); });
    lines(-1);
    return box;
  }

  const CARD = ["entropy (bits)", "mean distance", "previous token", "next token", "same token", "first token"];
  function card(one) {
    if (!one.card) return null;
    return el("dl", { class: "card" }, ...CARD.map((name, i) => el("div", {}, el("dt", {}, name), el("dd", {}, number(one.card[i])))));
  }

  function choice(name, options) {
    return el("div", { class: "choice", role: "group", "aria-label": name }, ...options.map(([value, text]) =>
      el("button", { type: "button", "aria-pressed": String(state[name] === value), onclick: () => { state[name] = value; draw(); } }, text)));
  }

  function panel() {
    const l = layer(), one = head();
    if (state.mode === "picture" && l.keys === "slots") state.mode = "map";
    const found = shown(one);
    const tip = el("p", { class: "tip", "aria-live": "polite" }, { map: "Point at a cell to read it.", lines: "Point at a word to see where it looks.", picture: "Click a patch to see where it looks." }[state.mode]);
    const title = l.rows ? l.title : state.head < 0 ? `${l.title}, mean of ${l.heads.length} heads` : `${l.title}, head ${state.head + 1}`;
    const inexact = one.exact ? null : el("p", { class: "note" },
      `Only the ${one.largest_count} largest weights of each row are in this page; choose the head with --head to have all of them.`);
    const side = [];
    if (l.heads.length > 1) {
      const canvas = el("canvas", { "aria-hidden": "true" }), other = state.head < 0 ? null : shown(l.mean);
      if (other) {
        paint(canvas, other, Math.min(12, 220 / Math.max(other.n, other.m)));
        side.push(el("figure", {}, el("figcaption", {}, el("b", {}, "Mean of all heads"), el("span", { class: "note" }, "what averaging keeps")), canvas,
          el("button", { type: "button", class: "link", onclick: () => choose(state.layer, -1) }, "show the mean")));
      }
    }
    const modes = [["map", "Map"], ["lines", "Lines"], ...(view().picture && l.keys !== "slots" ? [["picture", "Picture"]] : [])];
    const draws = { map: headMap, lines: headLines, picture: overPicture };
    return el("section", { class: "head" }, el("h2", {}, title),
      el("div", { class: "bar" }, choice("mode", modes), choice("unit", [["words", "Words"], ["tokens", "Tokens"]])),
      tip, inexact,
      el("div", { class: "work" }, el("div", { class: "scroll" }, draws[state.mode](found, tip)),
        el("aside", {}, state.head < 0 ? null : card(one), ...side)), buckets());
  }

  // ------------------------------------------------------------------------------------------------- the rest

  function table(head, rows) {
    return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, ...rows)));
  }
  function links() {
    if (!data.links) return null;
    const rows = data.links.heads.slice(0, 20).map((x) => {
      const i = view().layers.findIndex((l) => l.name === x.layer);
      return el("tr", {}, el("td", { class: "number" }, number(x.weight, 3)), el("td", { class: "number" }, String(x.rank)),
        el("td", {}, i < 0 ? x.layer : el("button", { type: "button", class: "link", onclick: () => { choose(i, x.head); window.scrollTo(0, 0); } }, `${view().layers[i].title}, head ${x.head + 1}`)));
    });
    return el("section", {}, el("h2", {}, `Heads that link “${data.links.query}” to “${data.links.key}”`), table(["weight", "rank", "head"], rows));
  }
  function spread(values, words, signed) {
    const top = Math.max(1e-9, ...values.map(Math.abs));
    return el("span", { class: "spread" }, ...words.map((word, i) => {
      const share = values[i] / top;
      return el("span", { class: signed && share < 0 ? "minus" : "plus", style: { "--shade": Math.abs(share).toFixed(3) }, title: number(values[i], 3) }, el("bdi", {}, show(word)));
    }));
  }
  function attribution() {
    const v = view();
    if (!v.attribution) return null;
    const words = v.labels.source;
    const rows = v.attribution.map((values, i) => el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, show(v.wanted[i]))), el("td", {}, spread(values.slice(0, words.length), words, true))));
    return el("section", {}, el("h2", {}, "What each prediction rests on"),
      el("p", { class: "note" }, "How much log P of a prediction falls when a token is replaced by padding (occlusion); red tokens speak against it."), table(["prediction", "tokens read"], rows));
  }
  function lens() {
    const v = view();
    if (!v.lens.length) return null;
    const count = Math.min(16, v.wanted.length);
    const rows = v.lens.map((each) => el("tr", {}, el("th", { scope: "row" }, each.place),
      ...each.best.slice(0, count).map((best, k) => el("td", { class: best === v.wanted[k] ? "yes" : null, title: `p = ${number(each.p[k], 3)}; of “${show(v.wanted[k])}” ${number(each.wanted[k], 3)}` }, el("bdi", {}, show(best)), el("span", { class: "note" }, ` ${number(each.p[k])}`)))));
    return el("section", {}, el("h2", {}, "What each layer would say"),
      el("p", { class: "note" }, "The stream after each block through the last norm and the head (logit lens)."),
      table(["after", ...v.wanted.slice(0, count).map((w, k) => `${k + 1}`)], rows));
  }
  function rolled() {
    const v = view();
    if (!v.rollout) return null;
    const values = floats(v.rollout.weights), side = v.layers[0].queries, words = v.labels[side], n = words.length;
    const out = el("p", {});
    const pick = el("select", { onchange: () => { const i = Number(pick.value); out.replaceChildren(spread([...values.slice(i * n, i * n + n)], words, false)); } },
      ...words.map((w, i) => el("option", { value: String(i) }, `${i + 1} ${show(w)}`)));
    pick.value = String(n - 1);
    pick.dispatchEvent(new Event("change"));
    return el("section", {}, el("h2", {}, "Attention through all layers"),
      el("p", { class: "note" }, "Attention rollout (Abnar & Zuidema 2020): how much of each token is in a position after the last layer."),
      el("label", {}, "position ", pick), out);
  }
  function flowed() {
    const v = view();
    if (!v.flow) return null;
    const words = v.labels[v.layers[0].queries];
    return el("section", {}, el("h2", {}, "Attention flow"),
      el("p", { class: "note" }, `The largest flow from position ${v.flow.position + 1} (${show(words[v.flow.position])}) to each token, with weights as capacities (Abnar & Zuidema 2020).`),
      el("p", {}, spread(v.flow.values, words, false)));
  }
  function patched() {
    if (!data.patched) return null;
    const p = data.patched, words = view().labels.source;
    if (!p.places.length) return el("section", {}, el("h2", {}, "Where the two inputs part"), el("p", { class: "note" }, "No difference beyond rounding: the second input changes no prediction."));
    const rows = p.places.map((place, i) => el("tr", {}, el("th", { scope: "row" }, place), el("td", {}, spread(p.restored[i].map((x) => x || 0).slice(0, words.length), words, true))));
    return el("section", {}, el("h2", {}, "Where the two inputs part"),
      el("p", { class: "note" }, `The second input with the first one's activation at one place and position: the share of the difference in log P of prediction ${p.prediction + 1}, which differs most, that comes back (${number(p.corrupt, 3)} to ${number(p.clean, 3)}).`), table(["place", "position"], rows));
  }
  function tabs() {
    if (data.views.length < 2) return null;
    return el("div", { class: "choice", role: "group", "aria-label": "input" }, ...data.views.map((v, i) =>
      el("button", { type: "button", "aria-pressed": String(state.view === i), onclick: () => { state.view = i; state.layer = Math.min(state.layer, v.layers.length - 1); build(); } }, v.text)));
  }

  let slots;
  function draw() {
    slots.panel.replaceChildren(panel());
    grid.forEach((cells, i) => cells.forEach((cell, h) => {
      const on = i === state.layer && h === state.head;
      cell.classList.toggle("on", on);
      cell.setAttribute("aria-pressed", String(on));
      cell.tabIndex = on || (state.head < 0 && i === state.layer && h === 0) ? 0 : -1;
    }));
  }
  function build() {
    const v = view();
    slots = { panel: el("div") };
    const said = [el("p", { class: "lead" }, el("bdi", {}, v.text), ...(v.output && v.output !== v.text ? [" → ", el("bdi", {}, v.output)] : []))];
    const note = v.whole ? null : el("p", { class: "note" }, "The input is long: chosen heads are exact, the others are thumbnails with their largest weights.");
    root.replaceChildren(...[...said, tabs(), note, overview(), slots.panel, links(), attribution(), lens(), rolled(), flowed(), patched()].filter(Boolean));
    draw();
  }
  if (data.views[0].picture) state.mode = "picture";
  if (data.views[0].layers.some((l) => l.rows)) state.mode = "lines"; // whole sentences need their width
  if (data.links && data.links.heads.length) {
    const best = data.links.heads[0], i = data.views[0].layers.findIndex((l) => l.name === best.layer);
    if (i >= 0) { state.layer = i; state.head = best.head; }
  } else {
    state.layer = data.views[0].layers.length - 1;
  }
  build();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
})();
