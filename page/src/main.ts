// The page: its head, its views, and what is shown before a model answers.

import "./page.css";
import { get, Refusal, setKey, type Served } from "./api";
import { Attempt, notice, whenKeyIsMissing } from "./attempt";
import { field, fill, h, icon } from "./dom";
import { insideView } from "./inside";
import { picturesView } from "./pictures";
import { textView } from "./text";
import { trainingView } from "./training";
import { translatorView } from "./translator";
import type { View } from "./view";

const VIEWS: View[] = [translatorView, textView, picturesView, insideView, trainingView];

const nav = h("nav", { "aria-label": "Views" });
const main = h("main", { id: "main", tabindex: -1 });
let models: Served[] = [];
let hasRuns = false;
let close = (): void => {};

function draw(): void {
  const skip = h("a", { class: "skip", href: "#main", onclick: (event: Event) => {
    event.preventDefault();
    main.focus();
  } }, "Skip to content");
  const brand = h("a", { class: "brand", href: "#/" }, h("img", { src: "/static/icon.svg", alt: "", width: 24, height: 24 }), "Regard");
  document.body.append(skip, h("header", {}, h("div", { class: "bar" }, brand, nav)), main);
}

/** Ask what is served, then show it. */
async function begin(): Promise<void> {
  const attempt = new Attempt((busy) => {
    if (busy) fill(attempt.place, notice("busy", "Loading", "Asking the server what it serves."));
  });
  fill(main, attempt.place);
  await attempt.run(async (signal) => {
    models = await get<Served[]>("/models", signal);
    hasRuns = await findRuns(signal);
    if (models.length === 0 && !hasRuns) throw new Refusal(503, "The models are being loaded.", 2);
    show();
  });
}

async function findRuns(signal: AbortSignal): Promise<boolean> {
  try {
    await get("/runs", signal);
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return false;
    throw error;
  }
}

/** Show the view that the address names, or the first. */
function show(): void {
  const served = VIEWS.filter((view) => view.isServed(models, hasRuns));
  const name = location.hash.replace(/^#\/?/, "");
  const view = VIEWS.find(({ id }) => id === name) ?? served[0];
  fill(
    nav,
    ...served.map(({ id, title }) => h("a", { href: `#/${id}`, "aria-current": id === view?.id ? "page" : null }, title)),
  );
  close();
  close = () => {};
  const place = h("div", { class: "view" });
  fill(main, h("h1", { class: "hidden" }, view?.title ?? "Regard"), place);
  document.title = view === undefined ? "Regard" : `${view.title} · Regard`;
  if (view === undefined) fill(place, notice("empty", "Nothing to show", "The server has no models and no runs."));
  else if (served.includes(view)) close = view.open(place, models);
  else fill(place, notice("empty", `Nothing is served for “${view.title}”`, view.wanted));
}

/** Ask for a key; the page begins again with it. */
function askForKey(): void {
  close();
  close = () => {};
  fill(nav);
  const input = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const tell = h("p", { class: "fault", role: "alert" });
  let tries = 0;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const mine = ++tries;
    fill(tell);
    setKey(input.value.trim());
    try {
      await get("/models");
    } catch (error) {
      if (mine !== tries) return; // another key was sent meanwhile
      setKey(null);
      const isUnknown = error instanceof TypeError || (error instanceof Refusal && error.status === 401);
      fill(tell, isUnknown ? "The server does not know this key." : String(error));
      input.select();
      return;
    }
    await begin();
  };
  document.title = "Key · Regard";
  fill(
    main,
    h(
      "form",
      { class: "card gate", onsubmit: (event: Event) => void submit(event) },
      icon("key"),
      h("h1", {}, "This server needs a key"),
      h("p", { class: "note" }, "Whoever runs the server has it. It is kept until you close this tab."),
      field("API key", input, tell),
      h("button", { type: "submit", class: "main" }, "Continue"),
    ),
  );
  input.focus();
}

draw();
whenKeyIsMissing(askForKey);
window.addEventListener("hashchange", () => {
  if (models.length > 0 || hasRuns) show();
});
void begin();
