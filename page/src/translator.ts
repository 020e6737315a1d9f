// The translator: two boxes, alternatives, confidence and alignment by word, a glossary.

import { post, type Output, type Ran, type Served } from "./api";
import { Attempt } from "./attempt";
import { choice, debounce, field, fill, h, icon, rove, setOptions } from "./dom";
import { nameLanguage, percent } from "./format";
import { Glossary } from "./glossary";
import { SourceBox, splitWords } from "./source_box";
import { listModels, type View } from "./view";

const PAUSE = 300; // milliseconds without a key before what was typed is translated
const BEAM = 4;
const MANY_LINES = 100; // lines in a request

interface Line {
  /** The number of its first word in the source. */
  firstWord: number;
  outputs: Output[];
  /** Which of them is shown. */
  chosen: number;
}

class Translator {
  private readonly models: Served[];
  private from = "";
  private to = "";
  private lines: (Line | null)[] = [];
  private activeLine = 0;
  private readonly attempt = new Attempt(
    (busy) => this.setBusy(busy),
    () => this.result.classList.add("stale"),
  );
  private readonly typing = debounce(() => this.translate(), PAUSE);
  private readonly source = new SourceBox(() => this.typed());
  private readonly glossary = new Glossary(() => this.typing.later());
  private readonly result = h("div", { class: "result", role: "group", "aria-label": "Translation", dir: "auto" });
  private readonly about = h("p", { class: "about", role: "status" });
  private readonly others = h("section", { class: "panel alternatives", "aria-label": "Alternatives" });
  private readonly fromSelect = choice([], "", (value) => this.choosePair(value, this.to));
  private readonly toSelect = choice([], "", (value) => this.choosePair(this.from, value));
  private readonly modelSelect = choice([], "", () => this.typing.now());
  private readonly modelField = field("Model", this.modelSelect);
  private readonly middle = h("div", { class: "middle" });
  private readonly copyButton = h("button", { type: "button", class: "quiet", onclick: () => void this.copy() });

  constructor(place: HTMLElement, models: Served[]) {
    this.models = listModels(models, "translate");
    const first = this.models[0]?.languages;
    this.fromSelect.setAttribute("aria-label", "From");
    this.toSelect.setAttribute("aria-label", "To");
    const pair = h(
      "div",
      { class: "pair" },
      h("div", { class: "side" }, this.fromSelect),
      this.middle,
      h("div", { class: "side" }, this.toSelect),
    );
    const boxes = h(
      "div",
      { class: "boxes" },
      h("div", { class: "box" }, this.source.element),
      h("div", { class: "box output" }, this.result, h("div", { class: "foot" }, this.about, this.copyButton)),
    );
    fill(
      place,
      h("div", { class: "card translator" }, pair, boxes),
      this.attempt.place,
      h("div", { class: "columns" }, this.others, h("div", {}, this.modelField, this.glossary.element)),
    );
    this.result.addEventListener("pointerleave", () => this.point(null));
    this.result.addEventListener("focusout", () => this.point(null));
    rove(this.result, ".word");
    this.choosePair(first?.sources[0] ?? "", first?.targets[0] ?? "");
    this.draw();
  }

  close(): void {
    this.attempt.cancel();
  }

  /** Models for a pair of languages. */
  private find(from: string, to: string): Served[] {
    return this.models.filter(
      ({ languages }) => languages?.sources.includes(from) && languages.targets.includes(to),
    );
  }

  private choosePair(from: string, to: string): void {
    const targets = unique(
      this.models.flatMap(({ languages }) => (languages?.sources.includes(from) ? languages.targets : [])),
    );
    this.from = from;
    this.to = targets.includes(to) ? to : (targets.find((code) => code !== from) ?? targets[0] ?? "");
    const sources = unique(this.models.flatMap(({ languages }) => languages?.sources ?? []));
    setOptions(this.fromSelect, sources.map(nameOption), this.from);
    setOptions(this.toSelect, targets.map(nameOption), this.to);
    const fitting = this.find(this.from, this.to).map(({ name }) => name);
    const before = this.modelSelect.value;
    const model = fitting.includes(before) ? before : (fitting[0] ?? "");
    setOptions(this.modelSelect, fitting.map((name) => [name, name] as const), model);
    this.modelField.hidden = fitting.length < 2;
    const canSwap = this.from !== this.to && this.find(this.to, this.from).length > 0;
    fill(this.middle, canSwap ? this.makeSwap() : icon("arrow"));
    this.typing.now();
  }

  private makeSwap(): HTMLElement {
    const swap = (): void => {
      const text = this.text();
      if (text !== "") this.source.text = text;
      this.choosePair(this.to, this.from);
      this.middle.querySelector("button")?.focus();
    };
    return h(
      "button",
      { type: "button", class: "round", "aria-label": "Swap languages", title: "Swap languages", onclick: swap },
      icon("swap"),
    );
  }

  private typed(): void {
    if (this.source.text.trim() === "") this.typing.now();
    else this.typing.later();
  }

  private translate(): void {
    const lines = this.source.text.split("\n");
    const inputs = lines.map((line) => line.trim()).filter((line) => line !== "");
    if (inputs.length === 0) {
      this.attempt.clear();
      this.lines = [];
      this.draw();
      return;
    }
    const model = this.models.find(({ name }) => name === this.modelSelect.value);
    const glossary = this.glossary.entries;
    const beam = Math.max(BEAM, model?.search?.beam ?? 1);
    const body = {
      model: this.modelSelect.value,
      to: model?.languages?.tagged ? this.to : null,
      glossary: Object.keys(glossary).length > 0 ? glossary : null,
      options: { words: true, n_best: BEAM, beam },
    };
    void this.attempt.run(async (signal) => {
      const rows: Output[][] = [];
      for (let at = 0; at < inputs.length; at += MANY_LINES) {
        const some = inputs.slice(at, at + MANY_LINES);
        rows.push(...(await post<Ran>("/run", { ...body, inputs: some }, signal)).outputs);
      }
      this.show(lines, rows);
    });
  }

  private show(lines: string[], rows: Output[][]): void {
    let firstWord = 0;
    let next = 0;
    this.lines = lines.map((line) => {
      if (line.trim() === "") return null;
      const found = { firstWord, outputs: rows[next] ?? [], chosen: 0 };
      firstWord += splitWords(line).length;
      next += 1;
      return found;
    });
    this.activeLine = this.lines.findIndex((line) => line !== null);
    this.draw();
  }

  /** The translation as it is shown. */
  private text(): string {
    return this.lines.map((line) => line?.outputs[line.chosen]?.text ?? "").join("\n");
  }

  private draw(): void {
    this.point(null);
    this.result.classList.remove("stale");
    if (this.lines.length === 0) {
      fill(this.result, h("p", { class: "placeholder" }, "The translation appears here while you type."));
    } else {
      fill(this.result, ...this.lines.map((line, i) => this.drawLine(line, i)));
      const first = this.result.querySelector<HTMLElement>(".word");
      if (first) first.tabIndex = 0;
    }
    this.drawAlternatives();
    this.copyButton.hidden = this.lines.length === 0;
    fill(this.copyButton, icon("copy"), "Copy");
  }

  private drawLine(line: Line | null, index: number): HTMLElement {
    const paragraph = h("p", { dir: "auto" });
    const output = line?.outputs[line.chosen];
    if (line === null || output === undefined) return fill(paragraph, h("br"));
    if (output.error !== undefined) return fill(paragraph, h("span", { class: "fault" }, output.error));
    const words = output.words ?? [];
    if (words.map(({ text }) => text).join("") === "") return fill(paragraph, output.text);
    let rest = output.text;
    words.forEach((word, i) => {
      const at = rest.indexOf(word.text);
      if (at > 0) paragraph.append(rest.slice(0, at));
      rest = at < 0 ? rest : rest.slice(at + word.text.length);
      const describe = (): void => this.point({ line: index, word: i });
      paragraph.append(
        h(
          "span",
          {
            role: "button", class: `word ${grade(word.confidence)}`, tabindex: -1,
            onpointerenter: describe, onfocus: describe, onclick: describe,
          },
          word.text,
        ),
      );
    });
    paragraph.append(rest);
    return paragraph;
  }

  /** Say how sure the model is of a word, and mark the words of the source that it comes from. */
  private point(at: { line: number; word: number } | null): void {
    const line = at === null ? null : this.lines[at.line];
    const output = line?.outputs[line.chosen];
    const word = at === null ? undefined : output?.words?.[at.word];
    if (at === null || !line || !output || word === undefined) {
      this.source.mark([]);
      const hint = this.result.querySelector(".word") ? "Point at a word to see where it comes from." : "";
      fill(this.about, hint);
      return;
    }
    const sources = (output.alignment ?? []).filter(([, target]) => target === at.word).map(([source]) => source);
    const marked = this.source.mark(sources.map((i) => line.firstWord + i));
    const origin = marked.length > 0 ? `, from “${marked.join(" ")}”` : "";
    fill(this.about, h("b", {}, percent(word.confidence)), ` sure of “${word.text}”${origin}`);
    if (this.activeLine !== at.line) {
      this.activeLine = at.line;
      this.drawAlternatives();
    }
  }

  private drawAlternatives(): void {
    const line = this.lines[this.activeLine];
    const title = h("h2", {}, "Alternatives");
    const outputs = line?.outputs.filter((output) => output.error === undefined) ?? [];
    if (!line || outputs.length === 0) {
      fill(this.others, title, h("p", { class: "note" }, "Other translations of a line, with how likely each is."));
      return;
    }
    const many = this.lines.filter((each) => each !== null).length > 1;
    const rows = line.outputs.map((output, i) => {
      const share = Math.exp(output.log_prob ?? Number.NEGATIVE_INFINITY);
      const use = (): void => {
        line.chosen = i;
        this.draw();
        this.others.querySelectorAll<HTMLElement>("button")[i]?.focus();
      };
      const button = h(
        "button",
        { type: "button", "aria-pressed": i === line.chosen ? "true" : "false", onclick: use },
        h("span", { class: "text", dir: "auto" }, output.text || "(empty)"),
        h("span", { class: "share", title: `score ${(output.score ?? 0).toFixed(3)}` }, percent(share)),
      );
      return h("li", {}, button);
    });
    fill(this.others, title, many && h("p", { class: "note" }, `Line ${this.activeLine + 1}`), h("ol", {}, ...rows));
  }

  private async copy(): Promise<void> {
    let done = true;
    try {
      await navigator.clipboard.writeText(this.text());
    } catch {
      done = false;
    }
    fill(this.copyButton, icon(done ? "check" : "alert"), done ? "Copied" : "Not allowed");
    window.setTimeout(() => fill(this.copyButton, icon("copy"), "Copy"), 2000);
  }

  private setBusy(busy: boolean): void {
    this.result.setAttribute("aria-busy", String(busy));
    this.result.classList.toggle("waiting", busy);
  }
}

function grade(confidence: number): string {
  return confidence >= 0.9 ? "sure" : confidence >= 0.6 ? "fair" : "unsure";
}

function nameOption(code: string): readonly [string, string] {
  return [code, nameLanguage(code)];
}

function unique(values: string[]): string[] {
  return [...new Set(values)];
}

export const translatorView: View = {
  id: "translate",
  title: "Translate",
  isServed: (models) => listModels(models, "translate").length > 0,
  wanted: "Serve a translation model: regard train translate train.en train.de, then regard serve runs/translate.",
  open(place, models) {
    const translator = new Translator(place, models);
    return () => translator.close();
  },
};
