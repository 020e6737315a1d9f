// Elements from code. Texts become text nodes, never markup.

export type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);

/** An element with attributes, listeners (`onclick`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Value> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as (event: Event) => void);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, ...children);
  return element;
}

function add(parent: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** Replace all children of an element. */
export function fill<E extends Element>(parent: E, ...children: Child[]): E {
  parent.replaceChildren();
  add(parent, ...children);
  return parent;
}

const ICONS = {
  swap: "M4 8h13M13 4l4 4-4 4M20 16H7M11 12l-4 4 4 4",
  arrow: "M4 12h16M14 6l6 6-6 6",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.500l4.500 4.500L19 7.500",
  clear: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  busy: "M12 3v5M12 16v5M3 12h5M16 12h5",
  key: "M14 10a4 4 0 1 0-3.500 4L13 16h2v2h2v2h3v-3l-6.200-6.200",
  alert: "M12 8v5M12 16.500v.1M12 3l9.500 17h-19z",
  clock: "M12 7v5l3.500 2M21 12a9 9 0 1 1-18 0a9 9 0 0 1 18 0z",
  open: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  empty: "M4 5h16v11H9l-5 4z",
} as const;
export type Icon = keyof typeof ICONS;

/** A line drawing, for the eye only. */
export function icon(name: Icon): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

let count = 0;
/** An id for an element that a label points to. */
export function newId(): string {
  count += 1;
  return `e${count}`;
}

/** A control below its label. */
export function field(label: string, control: HTMLElement, ...more: Child[]): HTMLElement {
  control.id ||= newId();
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, ...more);
}

/** A select with these options; the change listener gets the chosen value. */
export function choice(
  options: readonly (readonly [value: string, label: string])[],
  chosen: string,
  change: (value: string) => void,
): HTMLSelectElement {
  const select = h("select", { onchange: () => change(select.value) });
  setOptions(select, options, chosen);
  return select;
}

export function setOptions(
  select: HTMLSelectElement,
  options: readonly (readonly [value: string, label: string])[],
  chosen: string,
): void {
  fill(select, ...options.map(([value, label]) => h("option", { value }, label)));
  select.value = chosen;
}

/** Call `work` when nothing has happened for a while; `now` calls it at once. */
export function debounce(work: () => void, milliseconds: number): { later: () => void; now: () => void } {
  let timer = 0;
  const now = (): void => {
    clearTimeout(timer);
    work();
  };
  const later = (): void => {
    clearTimeout(timer);
    timer = window.setTimeout(work, milliseconds);
  };
  return { later, now };
}

/** Arrow keys move the focus in a group of buttons that is one stop of the tab key. */
export function rove(group: HTMLElement, selector: string): void {
  const all = (): HTMLElement[] => [...group.querySelectorAll<HTMLElement>(selector)];
  all().forEach((each, i) => (each.tabIndex = i === 0 ? 0 : -1));
  group.addEventListener("focusin", (event) => {
    const target = (event.target as HTMLElement).closest<HTMLElement>(selector);
    if (target) for (const each of all()) each.tabIndex = each === target ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const buttons = all();
    const at = buttons.findIndex((each) => each.contains(document.activeElement));
    if (step === undefined || at < 0) return;
    event.preventDefault();
    buttons[Math.min(Math.max(at + step, 0), buttons.length - 1)]?.focus();
  });
}
