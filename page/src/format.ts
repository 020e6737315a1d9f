// Numbers, times and languages for people.

export function percent(share: number): string {
  const value = 100 * share;
  if (value > 99.95) return "100 %";
  return value >= 10 ? `${value.toFixed(value >= 99 ? 1 : 0)} %` : value >= 0.1 ? `${value.toFixed(1)} %` : "< 0.1 %";
}

export function compact(value: number): string {
  return new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
}

export function number(value: number): string {
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(value);
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** A time that is not known to the second. */
export function estimate(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const WRITTEN: Record<string, string> = { bleu: "BLEU", chrf: "chrF", ter: "TER", cer: "CER", wer: "WER", f1: "F1", rouge: "ROUGE" };

/** A metric as papers write it. */
export function nameScore(score: string): string {
  return score.split("_").map((word) => WRITTEN[word] ?? word).join(" ");
}

const NAMES = new Intl.DisplayNames(["en"], { type: "language" });

export function nameLanguage(code: string): string {
  if (/^[a-z]{2,3}([-_]\w+)*$/i.test(code)) {
    try {
      const name = NAMES.of(code.replaceAll("_", "-"));
      if (name !== undefined && name !== code) return name;
    } catch {
      // not a code after all
    }
  }
  return code.charAt(0).toUpperCase() + code.slice(1);
}
