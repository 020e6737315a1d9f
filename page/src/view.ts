// What a view of the page is.

import type { Served } from "./api";

export interface View {
  id: string;
  title: string;
  /** Whether something is served that it can show. */
  isServed: (models: Served[], hasRuns: boolean) => boolean;
  /** What to serve, where nothing is. */
  wanted: string;
  /** Draw it; the function that is returned ends what runs in it. */
  open: (place: HTMLElement, models: Served[]) => () => void;
}

export function listModels(models: Served[], use: string): Served[] {
  return models.filter((model) => model.uses.includes(use));
}
