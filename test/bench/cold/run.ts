import { registerHooks } from "node:module";

/**
 * run MODULE EVENT: loads a function, gives it an event, and tells its parent how long either took in milliseconds,
 * and what came of it. `run MODULE` only loads it. With LIST_FILES, which files were loaded as well: that takes time.
 */
const [module = "", event] = process.argv.slice(2);
const context = { getRemainingTimeInMillis: () => 30_000 };

const files: string[] = [];
if (process.env.LIST_FILES) {
  registerHooks({
    load(url, hint, next) {
      files.push(url);
      return next(url, hint);
    },
  });
}

const startedAt = performance.now();
const { handler } = await import(module);
const importedAt = performance.now();
const imported = files.length;
const result = event === undefined ? undefined : await handler(JSON.parse(event), context);
const answeredAt = performance.now();

process.send?.(
  {
    importMillis: importedAt - startedAt,
    answerMillis: event === undefined ? 0 : answeredAt - importedAt,
    result,
    files: { atImport: files.slice(0, imported), atAnswer: files.slice(imported) },
  },
  // What the function keeps open would keep the process.
  () => process.exit(),
);
