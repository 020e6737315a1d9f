// A request and what is drawn around it: waiting, an error, an overloaded server, a missing key.

import { Refusal } from "./api";
import { h, fill, icon, type Icon } from "./dom";

const SLOW = 200; // milliseconds before something says that it waits
const PATIENCE = 5; // times an overloaded server is asked again by itself

let onMissingKey = (): void => {};
/** What to do when a request lacks a valid key. */
export function whenKeyIsMissing(work: () => void): void {
  onMissingKey = work;
}

/** A message with a drawing, and maybe something to press. */
export function notice(kind: Icon, title: string, text: string, ...actions: HTMLElement[]): HTMLElement {
  return h(
    "div",
    { class: `notice ${kind}` },
    icon(kind),
    h("div", {}, h("p", { class: "title" }, title), text && h("p", {}, text)),
    actions.length > 0 && h("div", { class: "actions" }, ...actions),
  );
}

/** Runs one request at a time for a part of the page; a new one ends the one before. */
export class Attempt {
  readonly place = h("div", { class: "place", role: "status" });
  private controller: AbortController | null = null;
  private slowTimer = 0;
  private retryTimer = 0;

  constructor(
    private readonly setBusy: (busy: boolean) => void = () => {},
    private readonly onFault: () => void = () => {},
  ) {}

  cancel(): void {
    this.controller?.abort();
    this.controller = null;
    clearTimeout(this.slowTimer);
    clearTimeout(this.retryTimer);
    this.setBusy(false);
  }

  /** Drop what was said about an earlier request. */
  clear(): void {
    this.cancel();
    fill(this.place);
  }

  async run(work: (signal: AbortSignal) => Promise<void>, tries = 0): Promise<void> {
    this.cancel();
    const controller = new AbortController();
    this.controller = controller;
    this.slowTimer = window.setTimeout(() => this.setBusy(true), SLOW);
    try {
      await work(controller.signal);
      if (this.controller === controller) fill(this.place);
    } catch (error) {
      if (controller.signal.aborted) return;
      this.onFault();
      this.explain(error, () => void this.run(work, tries), () => void this.run(work, tries + 1), tries);
    } finally {
      if (this.controller === controller) {
        clearTimeout(this.slowTimer);
        this.setBusy(false);
      }
    }
  }

  private explain(error: unknown, again: () => void, later: () => void, tries: number): void {
    const button = h("button", { type: "button", class: "quiet", onclick: again }, "Try again");
    if (!(error instanceof Refusal)) {
      fill(this.place, notice("alert", "Something went wrong", String(error), button));
      throw error;
    }
    if (error.status === 401) return onMissingKey();
    if (!error.isOverload) {
      const title = error.status === 0 ? "No connection" : error.status >= 500 ? "The server failed" : "That did not work";
      fill(this.place, notice("alert", title, error.message, button));
      return;
    }
    if (tries >= PATIENCE) {
      fill(this.place, notice("clock", "The server is still busy", error.message, button));
      return;
    }
    this.countDown(error, (error.retry ?? 2) * (tries + 1), button, later);
  }

  private countDown(error: Refusal, seconds: number, button: HTMLElement, later: () => void): void {
    const left = h("span", {}, `${seconds} s`);
    const box = notice("clock", "The server is busy", error.message, button);
    box.querySelector("p:last-of-type")?.append(" Trying again in ", left, ".");
    left.ariaHidden = "true";
    fill(this.place, box);
    let rest = seconds;
    const tick = (): void => {
      if (!box.isConnected) return;
      rest -= 1;
      left.textContent = `${rest} s`;
      if (rest <= 0) later();
      else this.retryTimer = window.setTimeout(tick, 1000);
    };
    this.retryTimer = window.setTimeout(tick, 1000);
  }
}
