// Text: completion, blanks, classes, labels and questions, as far as models for them are served.

import { post, postForEvents, type Output, type Ran, type Served } from "./api";
import { Attempt } from "./attempt";
import { bars } from "./bars";
import { choice, field, fill, h, icon, rove, type Child } from "./dom";
import { percent } from "./format";
import { listModels, type View } from "./view";

interface Tool {
  id: string;
  title: string;
  find: (models: Served[]) => Served[];
  open: (models: Served[]) => { element: HTMLElement; close: () => void };
}

/** A card with a text and what the model says of it. */
function sheet(
  models: Served[],
  inputs: Child[],
  action: string,
  ask: (model: string, signal: AbortSignal, result: HTMLElement) => Promise<void>,
  empty: string,
): { element: HTMLElement; close: () => void } {
  const result = h("div", { class: "answer", "aria-live": "polite" }, h("p", { class: "placeholder" }, empty));
  const button = h("button", { type: "submit", class: "main" }, action);
  const attempt = new Attempt((busy) => {
    result.setAttribute("aria-busy", String(busy));
    result.classList.toggle("waiting", busy);
  });
  const model = choice(models.map(({ name }) => [name, name] as const), models[0]?.name ?? "", () => {});
  const run = (event: Event): void => {
    event.preventDefault();
    void attempt.run((signal) => ask(model.value, signal, result));
  };
  const form = h(
    "form",
    { class: "card sheet", onsubmit: run },
    ...inputs,
    h("div", { class: "line end" }, models.length > 1 && field("Model", model), button),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return { element: h("div", { class: "columns" }, form, h("div", {}, attempt.place, result)), close: () => attempt.cancel() };
}

function box(placeholder: string, rows = 6): HTMLTextAreaElement {
  return h("textarea", { class: "plain", rows, placeholder, dir: "auto", required: true });
}

async function runTexts(path: string, model: string, text: string, n_best: number, signal: AbortSignal): Promise<Output[]> {
  const found = await post<Ran>(path, { model, text, n_best }, signal);
  const outputs = found.outputs[0] ?? [];
  if (outputs[0]?.error !== undefined) throw new Error(outputs[0].error);
  return outputs;
}

const complete: Tool = {
  id: "complete",
  title: "Complete",
  find: (models) => listModels(models, "complete").filter(({ task }) => !["translate", "span"].includes(task)),
  open(models) {
    const prompt = box("How the text begins", 5);
    const temperature = h("input", { type: "number", min: 0, max: 2, step: 0.1, value: 0.8 });
    const length = h("input", { type: "number", min: 1, max: 2048, step: 1, value: 200 });
    const model = choice(models.map(({ name }) => [name, name] as const), models[0]?.name ?? "", () => {});
    const text = h("p", { class: "written", dir: "auto" }, h("span", { class: "placeholder" }, "What the model writes appears here."));
    const state = h("p", { class: "note", role: "status" });
    const start = h("button", { type: "submit", class: "main" }, "Generate");
    const stop = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => attempt.cancel() }, "Stop");
    const attempt = new Attempt();
    const showRunning = (running: boolean): void => {
      stop.hidden = !running;
      start.disabled = running;
      text.classList.toggle("running", running);
    };
    const run = (event: Event): void => {
      event.preventDefault();
      const t = Number(temperature.value);
      const options = {
        max_length: Number(length.value),
        ...(t > 0
          ? { sample: true, temperature: t, seed: Math.floor(Math.random() * 2 ** 31) }
          : { sample: false, beam: 1 }),
      };
      void attempt.run(async (signal) => {
        const written = h("span");
        let pieces = 0;
        fill(text, h("span", { class: "soft" }, prompt.value), written);
        fill(state, "Writing …");
        showRunning(true);
        try {
          const body = { model: model.value, inputs: prompt.value, stream: true, options };
          for await (const event of postForEvents<{ piece?: string }>("/run", body, signal)) {
            if (event.piece === undefined) continue;
            pieces += 1;
            written.append(event.piece);
          }
          fill(state, `Done: ${pieces} piece${pieces === 1 ? "" : "s"}.`);
        } catch (error) {
          fill(state, signal.aborted ? `Stopped after ${pieces} pieces.` : "");
          throw error;
        } finally {
          showRunning(false);
        }
      });
    };
    const form = h(
      "form",
      { class: "card sheet", onsubmit: run },
      field("Beginning", prompt),
      h("div", { class: "line" }, field("Temperature", temperature), field("Maximum tokens", length)),
      h("div", { class: "line end" }, models.length > 1 && field("Model", model), stop, start),
    );
    return {
      element: h("div", { class: "columns" }, form, h("div", {}, attempt.place, h("div", { class: "answer" }, text, state))),
      close: () => attempt.cancel(),
    };
  },
};

const fillBlank: Tool = {
  id: "fill",
  title: "Fill in the blank",
  find: (models) => listModels(models, "fill"),
  open(models) {
    const text = box("The capital of France is ___.", 4);
    const insert = (): void => {
      text.setRangeText("___", text.selectionStart, text.selectionEnd, "end");
      text.focus();
    };
    const button = h("button", { type: "button", class: "quiet", onclick: insert }, icon("plus"), "Insert a blank");
    return sheet(
      models,
      [field("Text with ___ for each blank", text), button],
      "Fill in",
      async (model, signal, result) => {
        const found = await runTexts("/fill", model, text.value.replace(/_{2,}/g, "<mask>"), 5, signal);
        const list = bars(
          found.map((each) => ({
            label: each.fills?.map((part) => part.text.trim()).join(" · ") || each.text,
            share: Math.exp(each.log_prob ?? Number.NEGATIVE_INFINITY),
          })),
        );
        fill(result, h("p", { class: "best", dir: "auto" }, found[0]?.text ?? ""), list);
      },
      "The likeliest words appear here.",
    );
  },
};

const classify: Tool = {
  id: "classify",
  title: "Classify",
  find: (models) => listModels(models, "classify"),
  open(models) {
    const text = box("A text to sort into a class");
    return sheet(
      models,
      [field("Text", text)],
      "Classify",
      async (model, signal, result) => {
        const found = await runTexts("/classify", model, text.value, 10, signal);
        const rows = found.map((each) => ({ label: each.text, share: each.score ?? 0 }));
        fill(result, h("p", { class: "best" }, found[0]?.text ?? ""), bars(rows));
      },
      "Every class with its probability appears here.",
    );
  },
};

const label: Tool = {
  id: "tag",
  title: "Label words",
  find: (models) => listModels(models, "tag"),
  open(models) {
    const text = box("A sentence whose words are labeled", 4);
    return sheet(
      models,
      [field("Text", text)],
      "Label",
      async (model, signal, result) => {
        const [best] = await runTexts("/tag", model, text.value, 1, signal);
        const labels = best?.labels ?? [];
        const shares = Array.isArray(best?.probabilities) ? best.probabilities : [];
        const words = text.value.split(/\s+/).filter((word) => word !== "");
        const units = words.length === labels.length ? words : [...text.value];
        const rows = labels.map((each, i) =>
          h("li", {}, h("span", { class: "text", dir: "auto" }, units[i] ?? ""), h("b", {}, each), h("small", {}, percent(shares[i] ?? 0))),
        );
        fill(result, h("ol", { class: "labels" }, ...rows));
      },
      "Each word with its label appears here.",
    );
  },
};

const answer: Tool = {
  id: "answer",
  title: "Ask about a story",
  find: (models) => listModels(models, "answer"),
  open(models) {
    const story = box("Mary went to the kitchen. She took the milk.");
    const question = h("input", { type: "text", placeholder: "Where is the milk?", required: true, dir: "auto" });
    return sheet(
      models,
      [field("Story", story), field("Question", question)],
      "Ask",
      async (model, signal, result) => {
        const asked = question.value.trim().replace(/\??$/, "?");
        const told = story.value.trim().replace(/\s*\n\s*/g, " ").replace(/([^.!?])$/, "$1.");
        const found = await runTexts("/answer", model, `${told} ${asked}`, 3, signal);
        const rows = found.map((each) => ({ label: each.text, share: each.score ?? 0 }));
        const hops = found[0]?.hops ?? [];
        fill(
          result,
          h("p", { class: "best" }, found[0]?.text ?? ""),
          bars(rows),
          hops.length > 0 && h("h2", {}, "Sentences it looked at"),
          hops.length > 0 && bars(hops.map(({ hop, sentence, weight }) => ({ label: `${hop}. ${sentence}`, share: weight }))),
        );
      },
      "The answer appears here, with the sentences the model looked at.",
    );
  },
};

const TOOLS = [complete, fillBlank, classify, label, answer];

export const textView: View = {
  id: "text",
  title: "Text",
  isServed: (models) => TOOLS.some((tool) => tool.find(models).length > 0),
  wanted: "Serve a model that completes, fills in or classifies text: for example regard train shakespeare, then regard serve runs/shakespeare.",
  open(place, models) {
    const tools = TOOLS.filter((tool) => tool.find(models).length > 0);
    const body = h("div");
    let close = (): void => {};
    const buttons = tools.map((tool) =>
      h("button", { type: "button", onclick: () => choose(tool) }, tool.title),
    );
    function choose(tool: Tool): void {
      close();
      const opened = tool.open(tool.find(models));
      close = opened.close;
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(tools[i] === tool)));
      fill(body, opened.element);
    }
    const group = h("div", { class: "segments", role: "group", "aria-label": "What to do" }, ...buttons);
    rove(group, "button");
    fill(place, group, body);
    if (tools[0]) choose(tools[0]);
    return () => close();
  },
};
