// The box of the source text, in which words can be marked.

import { fill, h, icon } from "./dom";

/** The words of a line, as the server counts them: what stands between spaces. */
export function splitWords(line: string): string[] {
  return line.split(/\s+/).filter((word) => word !== "");
}

/** A text box above a copy of its text, where marks lie behind the words. */
export class SourceBox {
  readonly element: HTMLElement;
  private readonly area: HTMLTextAreaElement;
  private readonly copy = h("div", { class: "behind", "aria-hidden": "true" });
  private readonly count = h("span", { class: "note" });
  private readonly clearButton: HTMLButtonElement;

  constructor(private readonly change: () => void) {
    this.area = h("textarea", {
      "aria-label": "Text to translate", placeholder: "Type or paste a text", dir: "auto", spellcheck: "false",
      oninput: () => this.update(), onscroll: () => this.scroll(),
    });
    const clear = (): void => {
      this.text = "";
      this.update();
      this.area.focus();
    };
    this.clearButton = h(
      "button",
      { type: "button", class: "quiet", onclick: clear },
      icon("clear"),
      "Clear",
    );
    this.element = h(
      "div",
      { class: "source" },
      h("div", { class: "layers" }, this.copy, this.area),
      h("div", { class: "foot" }, this.count, this.clearButton),
    );
    this.refresh();
  }

  get text(): string {
    return this.area.value;
  }

  set text(value: string) {
    this.area.value = value;
    this.refresh();
  }

  /** Mark words, by their number in the text; returns them. */
  mark(words: number[]): string[] {
    const wanted = new Set(words);
    const marked: string[] = [];
    let number = -1;
    fill(
      this.copy,
      ...this.text.split(/(\s+)/).map((part) => {
        if (part.trim() === "") return part;
        number += 1;
        if (!wanted.has(number)) return part;
        marked.push(part);
        return h("mark", {}, part);
      }),
      "\n",
    );
    this.scroll();
    return marked;
  }

  private update(): void {
    this.refresh();
    this.change();
  }

  private refresh(): void {
    const length = [...this.text].length;
    this.count.textContent = length === 0 ? "" : `${length} character${length === 1 ? "" : "s"}`;
    this.clearButton.hidden = length === 0;
    this.mark([]);
  }

  private scroll(): void {
    this.copy.scrollTop = this.area.scrollTop;
  }
}
