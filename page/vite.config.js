// Builds the page into the package. Names carry no hash, so that a rebuild can be compared file by file.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { defineConfig } from "vite";

const ROOT = import.meta.dirname;
const OUT = process.env.PAGE_OUT ?? resolve(ROOT, "../src/regard/serve/static");
const SKIPPED = ["node_modules"];

/** SHA-256 over all sources; the tests compute the same and know whether the built page is that of the sources. */
function hashSources() {
  const files = readdirSync(ROOT, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .filter((name) => !SKIPPED.includes(name.split("/")[0]))
    .sort();
  const hash = createHash("sha256");
  for (const name of files) {
    hash.update(name).update("\0").update(readFileSync(join(ROOT, name))).update("\0");
  }
  return hash.digest("hex");
}

export default defineConfig({
  root: ROOT,
  base: "/static/",
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { entryFileNames: "page.js", assetFileNames: "page[extname]" },
    },
  },
  plugins: [
    {
      name: "plain-tags",
      transformIndexHtml: (html) => html.replaceAll(" crossorigin", ""),
    },
    {
      name: "source-hash",
      closeBundle() {
        writeFileSync(join(OUT, "sources.sha256"), `${hashSources()}\n`);
      },
    },
  ],
});
