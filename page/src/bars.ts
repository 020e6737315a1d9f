// Classes, words or translations with how likely each is.

import { h } from "./dom";
import { percent } from "./format";

export interface Bar {
  label: string;
  share: number;
  /** What is written instead of the share. */
  value?: string;
}

/** A list of bars, longest first as given. */
export function bars(rows: Bar[]): HTMLElement {
  return h(
    "ol",
    { class: "bars" },
    ...rows.map((row) => {
      const bar = h("span", { class: "fill" });
      bar.style.width = `${100 * Math.min(Math.max(row.share, 0), 1)}%`;
      return h(
        "li",
        {},
        h("span", { class: "name", dir: "auto" }, row.label),
        h("span", { class: "track", "aria-hidden": "true" }, bar),
        h("span", { class: "share" }, row.value ?? percent(row.share)),
      );
    }),
  );
}
