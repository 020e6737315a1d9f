// A model's card, from the little Markdown that cards are written in.

import { h } from "./dom";

const LONG = 200; // characters of a cell that is folded

/** Headings, tables, code and paragraphs; everything else stays as it is written. */
export function drawCard(text: string): HTMLElement {
  const out = h("div", { class: "markdown" });
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    if (line.startsWith("```")) {
      const end = lines.findIndex((each, i) => i > at && each.startsWith("```"));
      const stop = end < 0 ? lines.length : end;
      out.append(h("pre", { tabindex: 0 }, lines.slice(at + 1, stop).join("\n")));
      at = stop + 1;
    } else if (line.startsWith("|")) {
      let end = at;
      while (lines[end]?.startsWith("|")) end += 1;
      out.append(drawTable(lines.slice(at, end)));
      at = end;
    } else if (/^#{1,6} /.test(line)) {
      out.append(h("h3", {}, line.replace(/^#+ /, "")));
      at += 1;
    } else {
      if (line.trim() !== "") out.append(h("p", {}, line.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1")));
      at += 1;
    }
  }
  return out;
}

function drawTable(lines: string[]): HTMLElement {
  const rows = lines.filter((line) => !/^\|[\s|:-]+\|$/.test(line)).map((line) => line.slice(1, -1).split(/ \| /).map((cell) => cell.trim()));
  const [, ...body] = rows;
  return h(
    "table",
    {},
    h("tbody", {}, ...body.map(([name, ...rest]) => h("tr", {}, h("th", { scope: "row" }, name ?? ""), h("td", {}, drawCell(rest.join(" ").trim()))))),
  );
}

function drawCell(text: string): Node {
  if (text.length <= LONG) return document.createTextNode(text);
  return h("details", {}, h("summary", {}, `${text.slice(0, 60)} …`), h("p", { class: "code" }, text));
}
