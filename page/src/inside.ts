// Inside a model: what its heads look at, its card and its tree.

import { get, post, type Attention, type Served } from "./api";
import { Attempt } from "./attempt";
import { AttentionMap } from "./attention_map";
import { drawCard } from "./card";
import { choice, field, fill, h } from "./dom";
import { compact } from "./format";
import { listModels, type View } from "./view";

class Inside {
  private readonly maps = h("div", { class: "stack" });
  private readonly about = h("div", { class: "stack" });
  private readonly text = h("textarea", { class: "plain", rows: 3, required: true, dir: "auto", placeholder: "A text that the model reads" });
  private readonly output = h("input", { type: "text", dir: "auto", placeholder: "The model's own" });
  private readonly attempt = new Attempt((busy) => this.maps.classList.toggle("waiting", busy));
  private readonly describing = new Attempt((busy) => this.about.classList.toggle("waiting", busy));
  private readonly form: HTMLFormElement;
  private readonly models: Served[];
  private name: string;

  constructor(place: HTMLElement, models: Served[]) {
    this.models = models;
    this.name = models[0]?.name ?? "";
    const model = choice(models.map(({ name }) => [name, name] as const), this.name, (name) => this.choose(name));
    const run = (event: Event): void => {
      event.preventDefault();
      this.look();
    };
    this.form = h(
      "form",
      { class: "sheet", onsubmit: run },
      field("Text", this.text),
      h("div", { class: "line end" }, field("Output", this.output), h("button", { type: "submit", class: "main" }, "Look")),
    );
    fill(
      place,
      h("div", { class: "card sheet" }, field("Model", model), this.form),
      this.attempt.place,
      this.maps,
      this.describing.place,
      this.about,
    );
    this.choose(this.name);
  }

  close(): void {
    this.attempt.cancel();
    this.describing.cancel();
  }

  private choose(name: string): void {
    this.name = name;
    const model = this.models.find((each) => each.name === name);
    const canLook = model !== undefined && model.uses.includes("attention") && !model.uses.includes("image");
    this.form.hidden = !canLook;
    this.attempt.clear();
    fill(this.maps);
    void this.describing.run(async (signal) => {
      const found = await get<Served & { card: string; tree: string }>(`/models/${encodeURIComponent(name)}`, signal);
      const facts: [string, string][] = [
        ["Task", found.task],
        ["Parameters", found.parameters === undefined ? "–" : compact(found.parameters)],
        ["Engine", found.engine ?? "–"],
        ["Uses", found.uses.join(", ")],
      ];
      fill(
        this.about,
        h("section", { class: "panel figures", "aria-label": "Facts" }, h("dl", {}, ...facts.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text))))),
        h("section", { class: "panel", "aria-label": "Tree" }, h("h2", {}, "Tree"), h("pre", { tabindex: 0, role: "region", "aria-label": "Tree of the model" }, found.tree)),
        h("section", { class: "panel document", "aria-label": "Card" }, h("h2", {}, "Card"), drawCard(found.card)),
      );
    });
  }

  private look(): void {
    const output = this.output.value.trim();
    void this.attempt.run(async (signal) => {
      const body = { model: this.name, text: this.text.value, ...(output === "" ? {} : { output }) };
      const found = await post<Attention>("/attention", body, signal);
      const map = new AttentionMap(found);
      fill(this.maps, map.element);
    });
  }
}

export const insideView: View = {
  id: "inside",
  title: "Inside",
  isServed: (models) => models.length > 0,
  wanted: "Serve a model: regard serve runs/dates.",
  open(place, models) {
    const seen = listModels(models, "attention");
    const inside = new Inside(place, [...seen, ...models.filter((model) => !seen.includes(model))]);
    return () => inside.close();
  },
};
