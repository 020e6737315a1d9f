// A line chart of curves over steps.

import uPlot from "uplot";
import { compact, number } from "./format";
import { fill, h } from "./dom";

export interface Curve {
  name: string;
  color: number;
  dashed: boolean;
  points: [x: number, y: number][];
}

const HEIGHT = 220;

export class Chart {
  readonly element: HTMLElement;
  private readonly place = h("div", { class: "plot" });
  private readonly legend = h("ul", { class: "legend" });
  private readonly summary = h("p", { class: "hidden" });
  private plot: uPlot | null = null;
  private curves: Curve[] = [];
  private shape = "";
  private log = false;
  private readonly sizes = new ResizeObserver(() => this.resize());
  private readonly scheme = matchMedia("(prefers-color-scheme: dark)");
  private readonly repaint = (): void => {
    this.shape = "";
    this.draw(this.curves, this.log);
  };

  constructor(private readonly title: string) {
    this.element = h("figure", { class: "panel chart" }, h("figcaption", {}, title), this.legend, this.place, this.summary);
    this.place.setAttribute("aria-hidden", "true");
    this.sizes.observe(this.place);
    this.scheme.addEventListener("change", this.repaint);
  }

  draw(curves: Curve[], log: boolean): void {
    this.curves = curves;
    this.log = log && curves.every(({ points }) => points.every(([, y]) => y > 0)) && spread(curves) > 20;
    const xs = [...new Set(curves.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
    const data = [xs, ...curves.map(({ points }) => align(xs, points))] as uPlot.AlignedData;
    const shape = JSON.stringify([curves.map(({ name, points }) => [name, points.length < 40]), this.log]);
    if (this.plot === null || shape !== this.shape) {
      this.shape = shape;
      this.plot?.destroy();
      this.plot = new uPlot(this.describe(), data, this.place);
    } else {
      this.plot.setData(data);
    }
    this.describeInWords();
    this.write(null);
  }

  close(): void {
    this.sizes.disconnect();
    this.scheme.removeEventListener("change", this.repaint);
    this.plot?.destroy();
    this.element.remove();
  }

  private describe(): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const ink = (name: string): string => style.getPropertyValue(name).trim();
    const axis = {
      stroke: ink("--faint"), grid: { stroke: ink("--edge"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, sans-serif", gap: 6,
    };
    return {
      width: this.place.clientWidth || 320,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: this.log ? { distr: 3 } : {} },
      axes: [
        { ...axis, grid: { show: false }, size: 30, values: (_, ticks) => ticks.map(compact), space: 60 },
        { ...axis, size: 52, ...(this.log ? { grid: { ...axis.grid, filter: keepPowers } } : {}), values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : compact(tick))) },
      ],
      series: [
        {},
        ...this.curves.map(({ name, color, dashed, points }): uPlot.Series => ({
          label: name, stroke: ink(`--s${color % 6}`), width: 2, spanGaps: true,
          ...(dashed ? { dash: [5, 4] } : {}),
          points: { show: points.length < 40 && (dashed || points.length === 1), size: 5, fill: ink(`--s${color % 6}`) },
        })),
      ],
      hooks: { setCursor: [(plot) => this.write(plot.cursor.idx ?? null)] },
    };
  }

  /** The legend, with the values at the pointer or else the last ones. */
  private write(index: number | null): void {
    const at = index === null ? null : this.plot?.data[0][index];
    fill(
      this.legend,
      ...this.curves.map(({ name, color, dashed, points }) => {
        const shown = typeof at === "number" ? points.findLast(([x]) => x <= at) : points.at(-1);
        return h(
          "li",
          {},
          h("span", { class: `swatch s${color % 6}${dashed ? " dashed" : ""}`, "aria-hidden": "true" }),
          name,
          h("b", {}, shown === undefined ? "–" : number(shown[1])),
        );
      }),
      typeof at === "number" && h("li", { class: "note" }, `step ${at.toLocaleString("en")}`),
    );
  }

  private describeInWords(): void {
    this.summary.textContent = this.curves
      .map(({ name, points }) => {
        const [first, last] = [points[0], points.at(-1)];
        return first && last ? `${this.title} of ${name}: ${number(first[1])} at step ${first[0]}, ${number(last[1])} at step ${last[0]}.` : "";
      })
      .join(" ");
  }

  private resize(): void {
    const width = this.place.clientWidth;
    if (this.plot !== null && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }
}

function align(xs: number[], points: [number, number][]): (number | null)[] {
  const found = new Map(points);
  return xs.map((x) => found.get(x) ?? null);
}

/** How many times the largest value is the smallest. */
function spread(curves: Curve[]): number {
  const values = curves.flatMap(({ points }) => points.map(([, y]) => y));
  return Math.max(...values) / Math.min(...values);
}

/** Of the lines of a logarithmic axis, those at powers of ten. */
function keepPowers(_: uPlot, lines: number[]): (number | null)[] {
  return lines.map((line) => (Math.abs(Math.log10(line) % 1) < 1e-9 ? line : null));
}
