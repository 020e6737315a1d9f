// The attention of one text: every head small, one of them large.

import type { Attention } from "./api";
import { fill, h } from "./dom";
import { percent } from "./format";

const LARGEST = 560; // pixels of a map's side, at most
const SMALL = 44;

interface Head {
  layer: string;
  number: number;
  weights: number[][];
  rows: string[];
  columns: string[];
}

/** `decoder.blocks.1.cross` as people say it. */
function nameLayer(path: string): string {
  const found = /^(\w+)\.blocks\.(\d+)\.(.+)$/.exec(path);
  if (found === null) return path;
  const kind = found[3] === "cross" ? "cross-attention" : "self-attention";
  return `${found[1]} layer ${Number(found[2]) + 1}, ${kind}`;
}

export class AttentionMap {
  readonly element: HTMLElement;
  private readonly layers: Head[][];
  private at: [layer: number, head: number];
  private cell: [row: number, column: number] = [0, 0];
  private readonly title = h("h2", { "aria-live": "polite" });
  private readonly tip = h("p", { class: "about", role: "status" });
  private readonly canvas: HTMLCanvasElement;
  private readonly rows = h("div", { class: "rows", "aria-hidden": "true" });
  private readonly columns = h("div", { class: "tops", "aria-hidden": "true" });
  private readonly overview = h("div", { class: "overview", role: "group", "aria-label": "Layers and heads" });
  private readonly thumbs: HTMLButtonElement[][];

  constructor(found: Attention) {
    this.layers = Object.entries(found.weights).map(([path, heads]) => {
      const rows = path.startsWith("encoder") ? found.source : found.target;
      const columns = path.endsWith("cross") ? found.source : rows;
      return heads.map((weights, i) => ({ layer: nameLayer(path), number: i + 1, weights, rows, columns }));
    });
    const last = this.layers.length - 1;
    this.at = [Math.max(last, 0), 0];
    this.canvas = h("canvas", {
      class: "map", tabindex: 0, role: "application", "aria-label": "Attention weights: move with the arrow keys",
      onpointermove: (event: PointerEvent) => this.hover(event),
      onkeydown: (event: KeyboardEvent) => this.walk(event),
    });
    this.thumbs = this.layers.map((heads, layer) => heads.map((head, i) => this.drawThumb(head, layer, i)));
    fill(
      this.overview,
      ...this.thumbs.map((row, layer) => h("div", { class: "layer" }, h("span", { class: "note" }, this.layers[layer]?.[0]?.layer ?? ""), h("div", { class: "heads" }, ...row))),
    );
    this.overview.addEventListener("keydown", (event) => this.moveHead(event));
    const output = found.output.trim() === "" ? null : h("p", { class: "note", dir: "auto" }, `Output: ${found.output}`);
    this.element = h(
      "section",
      { class: "panel attention", "aria-label": "Attention" },
      this.overview,
      h("div", { class: "large" }, this.title, output, this.tip, h("div", { class: "mapbox scroll" }, h("span"), this.columns, this.rows, this.canvas)),
    );
    if (last >= 0) this.choose(this.at);
    else fill(this.element, h("p", { class: "placeholder" }, "This model has no attention weights to show."));
  }

  private drawThumb(head: Head, layer: number, index: number): HTMLButtonElement {
    const canvas = h("canvas", { width: SMALL, height: SMALL, "aria-hidden": "true" });
    paint(canvas, head, SMALL, SMALL);
    return h(
      "button",
      { type: "button", class: "thumb", "aria-label": `${head.layer}, head ${head.number}`, title: `${head.layer}, head ${head.number}`, onclick: () => this.choose([layer, index]) },
      canvas,
    );
  }

  private get head(): Head | undefined {
    return this.layers[this.at[0]]?.[this.at[1]];
  }

  private choose(at: [number, number]): void {
    this.at = at;
    this.thumbs.forEach((row, i) =>
      row.forEach((thumb, j) => {
        const on = i === at[0] && j === at[1];
        thumb.setAttribute("aria-pressed", String(on));
        thumb.tabIndex = on ? 0 : -1;
      }),
    );
    const head = this.head;
    if (head === undefined) return;
    fill(this.title, `${capital(head.layer)}, head ${head.number}`);
    const cell = Math.max(4, Math.min(26, Math.floor(LARGEST / Math.max(head.rows.length, head.columns.length))));
    const [width, height] = [cell * head.columns.length, cell * head.rows.length];
    this.canvas.width = width;
    this.canvas.height = height;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    paint(this.canvas, head, width, height);
    const labels = cell >= 10;
    fill(this.rows, ...(labels ? head.rows : []).map((text) => h("span", {}, text)));
    fill(this.columns, ...(labels ? head.columns : []).map((text) => h("span", {}, text)));
    this.rows.style.gridAutoRows = `${cell}px`;
    this.columns.style.gridAutoColumns = `${cell}px`;
    this.cell = [0, 0];
    fill(this.tip, "Each row is a token that looks; the stronger a cell, the more it looks at that column.");
  }

  private describe(): void {
    const [row, column] = this.cell;
    const head = this.head;
    const weight = head?.weights[row]?.[column];
    if (head === undefined || weight === undefined) return;
    fill(this.tip, h("b", {}, percent(weight)), ` of “${head.rows[row] ?? ""}” → “${head.columns[column] ?? ""}”`);
  }

  private hover(event: PointerEvent): void {
    const head = this.head;
    if (head === undefined) return;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * head.columns.length);
    const row = Math.floor(((event.clientY - box.top) / box.height) * head.rows.length);
    this.cell = [row, column];
    this.describe();
  }

  private walk(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const head = this.head;
    if (step === undefined || head === undefined) return;
    event.preventDefault();
    this.cell = [
      Math.min(Math.max(this.cell[0] + step[0], 0), head.rows.length - 1),
      Math.min(Math.max(this.cell[1] + step[1], 0), head.columns.length - 1),
    ];
    this.describe();
  }

  private moveHead(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const layer = Math.min(Math.max(this.at[0] + step[0], 0), this.layers.length - 1);
    const head = Math.min(Math.max(this.at[1] + step[1], 0), (this.layers[layer]?.length ?? 1) - 1);
    this.choose([layer, head]);
    this.thumbs[layer]?.[head]?.focus();
  }
}

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
};

/** Cells in the color of the accent, stronger where the weight is larger. */
function paint(canvas: HTMLCanvasElement, head: Head, width: number, height: number): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [r, g, b] = dark ? [127, 176, 255] : [37, 99, 201];
  context.clearRect(0, 0, width, height);
  const [w, h_] = [width / head.columns.length, height / head.rows.length];
  head.weights.forEach((row, i) =>
    row.forEach((weight, j) => {
      context.fillStyle = `rgba(${r}, ${g}, ${b}, ${Math.sqrt(Math.min(Math.max(weight, 0), 1)).toFixed(3)})`;
      context.fillRect(j * w, i * h_, w, h_);
    }),
  );
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
