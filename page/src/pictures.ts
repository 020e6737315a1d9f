// Pictures: draw a digit or drop a file; classes, and the patches the model looked at.

import { post, type Attention, type Output, type Ran, type Served } from "./api";
import { Attempt } from "./attempt";
import { bars } from "./bars";
import { choice, field, fill, h, icon } from "./dom";
import { Drawing } from "./drawing";
import { listModels, type View } from "./view";

class Pictures {
  private file: string | null = null;
  private isEmpty = true;
  private readonly models: Served[];
  private readonly state = h("p", { class: "note", role: "status" });
  private readonly drawing = new Drawing(() => this.drawn(), (text) => fill(this.state, text));
  private readonly patches = h("canvas", { class: "patches", "aria-hidden": "true" });
  private readonly result = h("div", { class: "answer", "aria-live": "polite" });
  private readonly attempt = new Attempt((busy) => {
    this.result.setAttribute("aria-busy", String(busy));
    this.result.classList.toggle("waiting", busy);
  });
  private readonly model: HTMLSelectElement;
  private readonly showPatches = h("input", { type: "checkbox", onchange: () => this.patches.classList.toggle("off", !this.showPatches.checked) });

  constructor(place: HTMLElement, models: Served[]) {
    this.models = listModels(models, "image");
    this.model = choice(this.models.map(({ name }) => [name, name] as const), this.models[0]?.name ?? "", () => this.classify());
    const input = h("input", { type: "file", accept: "image/*", class: "hidden", onchange: () => void this.read(input.files?.[0]) });
    const pad = h("div", { class: "pad" }, this.drawing.canvas, this.patches);
    this.showPatches.checked = true;
    const card = h(
      "div",
      { class: "card sheet" },
      pad,
      h(
        "div",
        { class: "line" },
        h("label", { class: "button quiet" }, input, icon("plus"), "Open a picture"),
        h("button", { type: "button", class: "quiet", onclick: () => this.clear() }, icon("clear"), "Clear"),
      ),
      h("label", { class: "check" }, this.showPatches, "Show the patches it looked at"),
      this.state,
      this.models.length > 1 && field("Model", this.model),
    );
    for (const name of ["dragover", "dragenter"]) card.addEventListener(name, (event) => {
      event.preventDefault();
      card.classList.add("over");
    });
    card.addEventListener("dragleave", () => card.classList.remove("over"));
    card.addEventListener("drop", (event) => {
      event.preventDefault();
      card.classList.remove("over");
      void this.read(event.dataTransfer?.files[0]);
    });
    fill(place, h("div", { class: "columns pictures" }, card, h("div", {}, this.attempt.place, this.result)));
    this.clear();
  }

  close(): void {
    this.attempt.cancel();
  }

  private clear(): void {
    this.attempt.clear();
    this.drawing.clear();
    this.file = null;
    this.isEmpty = true;
    this.forget();
    fill(this.state, "Draw in the square, or drop a picture here.");
    fill(this.result, h("p", { class: "placeholder" }, "Every class with its probability appears here."));
  }

  private forget(): void {
    this.patches.getContext("2d")?.clearRect(0, 0, this.patches.width, this.patches.height);
  }

  private drawn(): void {
    this.file = null;
    this.isEmpty = false;
    fill(this.state);
    this.classify();
  }

  private async read(file: File | undefined): Promise<void> {
    if (file === undefined) return;
    try {
      this.drawing.show(await createImageBitmap(file));
    } catch {
      this.clear();
      fill(this.state, `${file.name} is no picture that this browser can read.`);
      return;
    }
    this.file = await readUrl(file);
    this.isEmpty = false;
    fill(this.state, file.name);
    this.classify();
  }

  private classify(): void {
    if (this.isEmpty) return;
    const image = this.file ?? this.drawing.url;
    const model = this.model.value;
    this.forget();
    void this.attempt.run(async (signal) => {
      const found = await post<Ran>("/image", { model, image, n_best: 10 }, signal);
      this.show(found.outputs[0] ?? []);
      const uses = this.models.find(({ name }) => name === model)?.uses ?? [];
      if (!uses.includes("attention")) return;
      this.showAttention(await post<Attention>("/attention", { model, text: image, output: found.outputs[0]?.[0]?.text }, signal));
    });
  }

  private show(outputs: Output[]): void {
    const best = outputs[0];
    if (best?.error !== undefined) {
      fill(this.result, h("p", { class: "fault" }, best.error));
      return;
    }
    const rows = outputs.map(({ text, score }) => ({ label: text, share: score ?? 0 }));
    fill(this.result, h("p", { class: "best large" }, best?.text ?? ""), bars(rows));
  }

  /** Lay what the last layer looks at over the picture: the mean of its heads, from the class token where there is one. */
  private showAttention({ source, weights }: Attention): void {
    const heads = Object.values(weights).at(-1);
    const cells = source.map((label) => /^(\d+),(\d+)$/.exec(label)).map((found) => found && [Number(found[1]), Number(found[2])]);
    const context = this.patches.getContext("2d");
    if (heads === undefined || context === null || cells.every((cell) => cell === null)) return;
    const rows = cells[0] === null ? [0] : source.map((_, i) => i);
    const shares = source.map((_, column) => mean(heads.map((head) => mean(rows.map((row) => head[row]?.[column] ?? 0)))));
    const inner = shares.filter((_, i) => cells[i] !== null);
    const [low, high] = [Math.min(...inner), Math.max(...inner)];
    const side = Math.max(...cells.map((cell) => (cell ? Math.max(...cell) : 0))) + 1;
    this.patches.width = this.patches.height = side;
    cells.forEach((cell, i) => {
      if (cell === null || cell === undefined) return;
      const strength = high > low ? ((shares[i] ?? 0) - low) / (high - low) : 0;
      context.fillStyle = `rgba(255, 150, 40, ${(0.75 * strength).toFixed(3)})`;
      context.fillRect(cell[1] ?? 0, cell[0] ?? 0, 1, 1);
    });
  }
}

function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function readUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

export const picturesView: View = {
  id: "pictures",
  title: "Pictures",
  isServed: (models) => listModels(models, "image").length > 0,
  wanted: "Serve a model that classifies pictures: regard train vit FOLDER, then regard serve runs/vit.",
  open(place, models) {
    const pictures = new Pictures(place, models);
    return () => pictures.close();
  },
};
