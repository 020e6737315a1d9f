// Terms that are always translated in the same way.

import { fill, h, icon } from "./dom";

const KEY = "regard-glossary";

export class Glossary {
  readonly element: HTMLElement;
  private rows: [string, string][] = [];
  private readonly list = h("ul", { class: "terms" });
  private readonly summary = h("span", { class: "note" });

  constructor(private readonly change: () => void) {
    try {
      const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      if (Array.isArray(stored)) this.rows = stored.map((row: unknown[]) => [String(row[0]), String(row[1])]);
    } catch {
      // what is stored is not ours
    }
    this.element = h(
      "section",
      { class: "panel glossary", "aria-label": "Glossary" },
      h("div", { class: "line" }, h("h2", {}, "Glossary"), this.summary),
      this.list,
      h("button", { type: "button", class: "quiet", onclick: () => this.add() }, icon("plus"), "Add a term"),
    );
    this.draw();
  }

  get entries(): Record<string, string> {
    return Object.fromEntries(this.rows.map(([from, to]) => [from.trim(), to.trim()]).filter(([from, to]) => from && to));
  }

  private add(): void {
    this.rows.push(["", ""]);
    this.draw();
    this.list.querySelector<HTMLElement>("li:last-child input")?.focus();
  }

  private draw(): void {
    fill(this.list, ...this.rows.map((_, i) => this.drawRow(i)));
    this.summarize();
  }

  private drawRow(i: number): HTMLElement {
    const input = (side: 0 | 1, label: string): HTMLInputElement => {
      const box = h("input", {
        type: "text", "aria-label": `${label} ${i + 1}`, placeholder: label, dir: "auto",
        oninput: () => {
          const row = this.rows[i];
          if (row) row[side] = box.value;
          this.store();
        },
      });
      box.value = this.rows[i]?.[side] ?? "";
      return box;
    };
    const remove = (): void => {
      this.rows.splice(i, 1);
      this.draw();
      this.store();
    };
    return h(
      "li",
      {},
      input(0, "Term"),
      icon("arrow"),
      input(1, "Translation"),
      h("button", { type: "button", class: "round", "aria-label": `Remove term ${i + 1}`, onclick: remove }, icon("clear")),
    );
  }

  private store(): void {
    localStorage.setItem(KEY, JSON.stringify(this.rows));
    this.summarize();
    this.change();
  }

  private summarize(): void {
    const count = Object.keys(this.entries).length;
    this.summary.textContent = count === 0 ? "Terms that should always be translated the same way." : `${count} in use`;
  }
}
