// Training: runs of a folder, live: curves, speed, time left, samples.

import "uplot/dist/uPlot.min.css";
import { get, getBlob, hasKey } from "./api";
import { Attempt, notice } from "./attempt";
import { Chart, type Curve } from "./chart";
import { fill, h, icon } from "./dom";
import { compact, duration, estimate, nameScore, number } from "./format";
import type { View } from "./view";

const EVERY = 2000; // milliseconds between two looks
const RECENT = 6; // train events from which speed is estimated

interface LogEvent {
  event: string;
  step: number;
  loss?: number | null;
  rate?: number;
  tokens_per_s?: number;
  seconds?: number;
  total?: number | null;
  parameters?: number;
  scores?: Record<string, number | null>;
  samples?: { source?: string; reference?: string; output?: string }[];
}

interface RunSummary {
  name: string;
  step: number;
  done: boolean;
  running: boolean;
  changed: number;
  report: boolean;
}

class Run {
  events: LogEvent[] = [];
  private seen = new Set<string>();

  constructor(
    public summary: RunSummary,
    /** Where its color is in the palette. */
    readonly color: number,
  ) {}

  async refresh(signal: AbortSignal): Promise<void> {
    const last = this.events.at(-1)?.step ?? 0;
    const after = this.events.length === 0 ? -1 : last - 1;
    const found = await get<RunSummary & { events: LogEvent[] }>(
      `/runs/${encodeURIComponent(this.summary.name)}?after=${after}`,
      signal,
    );
    if (found.step < last) {
      this.events = []; // it was started over
      this.seen.clear();
      return this.refresh(signal);
    }
    this.summary = found;
    for (const event of found.events) {
      const id = `${event.event} ${event.step}`;
      if (!this.seen.has(id)) this.events.push(event);
      this.seen.add(id);
    }
  }

  list(kind: string): LogEvent[] {
    return this.events.filter(({ event }) => event === kind);
  }

  get total(): number | null {
    return this.list("start").at(-1)?.total ?? null;
  }

  /** Seconds to the last step, at the pace of the last few. */
  get left(): number | null {
    const recent = this.list("train").slice(-RECENT);
    const [first, last] = [recent[0], recent.at(-1)];
    if (!this.summary.running || this.total === null || !first || !last || last.step === first.step) return null;
    const pace = ((last.seconds ?? 0) - (first.seconds ?? 0)) / (last.step - first.step);
    return pace > 0 ? pace * Math.max(0, this.total - last.step) : null;
  }

  get state(): string {
    return this.summary.done ? "Finished" : this.summary.running ? "Training" : "Stopped";
  }
}

class Training {
  private runs = new Map<string, Run>();
  private chosen = new Set<string>();
  private timer = 0;
  private readonly controller = new AbortController();
  private readonly attempt = new Attempt();
  private readonly list = h("ul", { class: "runs" });
  private readonly detail = h("div", { class: "stack" });
  private readonly figures = h("div", { class: "stack" });
  private readonly samples = h("section", { class: "panel samples", hidden: true });
  private readonly charts = new Map<string, Chart>();
  private readonly grid = h("div", { class: "charts" });
  private drawn = "";

  constructor(place: HTMLElement) {
    fill(this.detail, this.figures, this.grid, this.samples);
    const side = h("section", { class: "panel", "aria-label": "Runs" }, h("h2", {}, "Runs"), this.list);
    fill(place, this.attempt.place, h("div", { class: "training" }, side, this.detail));
    void this.look();
  }

  close(): void {
    clearTimeout(this.timer);
    this.controller.abort();
    this.attempt.cancel();
    for (const chart of this.charts.values()) chart.close();
  }

  private async look(): Promise<void> {
    await this.attempt.run(async (signal) => {
      const found = await get<RunSummary[]>("/runs", signal);
      const first = this.runs.size === 0;
      found.forEach((summary) => {
        const run = this.runs.get(summary.name);
        if (run) run.summary = summary;
        else this.runs.set(summary.name, new Run(summary, this.runs.size));
      });
      const newest = [...found].sort((a, b) => b.changed - a.changed)[0];
      if (first && newest) this.chosen.add(newest.name);
      await this.refresh(signal);
    });
    if (!this.controller.signal.aborted) this.timer = window.setTimeout(() => void this.look(), EVERY);
  }

  private async refresh(signal: AbortSignal): Promise<void> {
    const chosen = this.listChosen();
    await Promise.all(chosen.filter((run) => run.events.length === 0 || !run.summary.done || run.events.at(-1)?.event !== "done").map((run) => run.refresh(signal)));
    this.draw();
  }

  private listChosen(): Run[] {
    return [...this.runs.values()].filter((run) => this.chosen.has(run.summary.name));
  }

  private draw(): void {
    this.drawList();
    const chosen = this.listChosen();
    const state = JSON.stringify(chosen.map((run) => [run.summary, run.events.length]));
    if (state === this.drawn) return;
    this.drawn = state;
    if (chosen.length === 0) {
      const text = this.runs.size === 0 ? "A run appears here as soon as its training begins." : "Choose a run to see its curves.";
      fill(this.figures, notice("empty", this.runs.size === 0 ? "No runs yet" : "No run chosen", text));
    } else {
      fill(this.figures, ...chosen.map((run) => drawFigures(run)));
    }
    this.drawCharts(chosen);
    this.drawSamples(chosen);
  }

  private drawList(): void {
    const names = [...this.runs.keys()].join("\n");
    if (this.list.dataset["names"] !== names) {
      this.list.dataset["names"] = names;
      fill(this.list, ...[...this.runs.values()].map((run) => this.drawItem(run)));
    }
    for (const item of this.list.children) {
      const run = this.runs.get((item as HTMLElement).dataset["name"] ?? "");
      const state = item.querySelector(".state");
      if (!run || !state) continue;
      state.textContent = `${run.state} · step ${run.summary.step.toLocaleString("en")}`;
      state.classList.toggle("live", run.summary.running);
    }
  }

  private drawItem(run: Run): HTMLElement {
    const name = run.summary.name;
    const box = h("input", {
      type: "checkbox",
      onchange: () => {
        if (box.checked) this.chosen.add(name);
        else this.chosen.delete(name);
        void this.refresh(this.controller.signal);
      },
    });
    box.checked = this.chosen.has(name);
    const swatch = h("span", { class: `swatch s${run.color % 6}`, "aria-hidden": "true" });
    return h("li", { "data-name": name }, h("label", {}, box, swatch, h("span", { class: "name" }, name), h("span", { class: "state" })));
  }

  private drawCharts(runs: Run[]): void {
    const scores = [...new Set(runs.flatMap((run) => run.list("valid").flatMap(({ scores }) => Object.keys(scores ?? {}))))];
    const wanted: [title: string, curves: Curve[], log: boolean][] = [
      ["Loss", runs.flatMap((run) => [curve(run, "train", "training", ({ loss }) => loss), curve(run, "valid", "validation", ({ loss }) => loss)]), true],
      ...scores.map((score): [string, Curve[], boolean] => [
        nameScore(score), runs.map((run) => curve(run, "valid", "", ({ scores: found }) => found?.[score])), false,
      ]),
      ["Learning rate", runs.map((run) => curve(run, "train", "", ({ rate }) => rate)), false],
      ["Tokens per second", runs.map((run) => curve(run, "train", "", ({ tokens_per_s }) => tokens_per_s)), false],
    ];
    const kept = new Set<string>();
    for (const [title, curves, log] of wanted) {
      const filled = curves.filter(({ points }) => points.length > 0);
      if (filled.length === 0) continue;
      kept.add(title);
      let chart = this.charts.get(title);
      if (!chart) {
        chart = new Chart(title);
        this.charts.set(title, chart);
        this.grid.append(chart.element);
      }
      chart.draw(filled, log);
    }
    for (const [title, chart] of this.charts) {
      if (kept.has(title)) continue;
      chart.close();
      this.charts.delete(title);
    }
  }

  private drawSamples(runs: Run[]): void {
    const rows = runs.flatMap((run) => {
      const last = run.list("valid").filter(({ samples }) => samples?.length).at(-1);
      return (last?.samples ?? []).map((sample) => ({ run, step: last?.step ?? 0, ...sample }));
    });
    this.samples.hidden = rows.length === 0;
    const many = runs.length > 1;
    const head = [many && "Run", "Step", "Source", "Reference", "Output"].filter((name) => name !== false);
    fill(
      this.samples,
      h("h2", {}, "Samples of the last validation"),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Samples" },
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, ...rows.map((row) =>
            h("tr", {}, many && h("td", {}, row.run.summary.name), h("td", { class: "number" }, row.step),
              ...[row.source, row.reference, row.output].map((text) => h("td", { dir: "auto" }, text ?? ""))),
          )),
        ),
      ),
    );
  }
}

function curve(run: Run, kind: string, label: string, read: (event: LogEvent) => number | null | undefined): Curve {
  const points = run.list(kind).flatMap((event): [number, number][] => {
    const y = read(event);
    return typeof y === "number" ? [[event.step, y]] : [];
  });
  const name = label === "" ? run.summary.name : `${run.summary.name}, ${label}`;
  return { name, color: run.color, dashed: kind === "valid" && label !== "", points };
}

/** Step, loss, speed and time of a run. */
function drawFigures(run: Run): HTMLElement {
  const train = run.list("train").at(-1);
  const valid = run.list("valid").at(-1);
  const [score, value] = Object.entries(valid?.scores ?? {})[0] ?? [];
  const total = run.total;
  const rows: [string, string][] = [
    ["Step", total === null ? run.summary.step.toLocaleString("en") : `${run.summary.step.toLocaleString("en")} of ${total.toLocaleString("en")}`],
    ["Loss", typeof train?.loss === "number" ? number(train.loss) : "–"],
    ...(score !== undefined && typeof value === "number" ? [[nameScore(score), number(value)] as [string, string]] : []),
    ["Tokens per second", train?.tokens_per_s === undefined ? "–" : compact(train.tokens_per_s)],
    run.left === null
      ? ["Time", train?.seconds === undefined ? "–" : duration(train.seconds)]
      : ["Time left", estimate(run.left)],
  ];
  const progress = h("progress", { max: total ?? 1, value: total === null ? 0 : Math.min(run.summary.step, total), "aria-label": `Progress of ${run.summary.name}` });
  return h(
    "section",
    { class: "panel figures", "aria-label": run.summary.name },
    h(
      "div",
      { class: "line" },
      h("h2", {}, h("span", { class: `swatch s${run.color % 6}`, "aria-hidden": "true" }), run.summary.name),
      h("span", { class: `badge ${run.summary.running ? "live" : ""}` }, run.state),
      run.summary.report && drawReport(run.summary.name),
    ),
    total !== null && !run.summary.done && progress,
    h("dl", {}, ...rows.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))),
  );
}

/** A link to the report; with a key, which no link can carry, the report is downloaded. */
function drawReport(name: string): HTMLElement {
  const path = `/runs/${encodeURIComponent(name)}/report`;
  if (!hasKey()) return h("a", { class: "quiet", href: path, target: "_blank", rel: "noopener" }, icon("open"), "Report");
  const save = async (): Promise<void> => {
    const link = h("a", { href: URL.createObjectURL(await getBlob(path)), download: `${name}.html` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return h("button", { type: "button", class: "quiet", onclick: () => void save() }, icon("open"), "Save report");
}

export const trainingView: View = {
  id: "training",
  title: "Training",
  isServed: (_, hasRuns) => hasRuns,
  wanted: "Start the server with a folder of runs: regard serve --runs runs/.",
  open(place) {
    const training = new Training(place);
    return () => training.close();
  },
};
