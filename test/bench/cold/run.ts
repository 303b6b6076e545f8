import { registerHooks } from "node:module";

/**
 * run MODULE [EVENT]: loads a function, calls it with the event, and sends the durations in milliseconds and the result
 * to its parent. With LIST_FILES, it also sends the loaded files, which takes time.
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

const cpuBefore = process.cpuUsage();
const startedAtMicros = micros();
const startedAt = performance.now();
const { handler } = await import(module);
const importedAt = performance.now();
const imported = files.length;
const result = event === undefined ? undefined : await handler(JSON.parse(event), context);
const answeredAt = performance.now();
const { user, system } = process.cpuUsage(cpuBefore);

process.send?.(
  {
    importMillis: importedAt - startedAt,
    answerMillis: event === undefined ? 0 : answeredAt - importedAt,
    cpuMillis: (user + system) / 1_000,
    window: { from: startedAtMicros, to: micros() },
    result,
    files: { atImport: files.slice(0, imported), atAnswer: files.slice(imported) },
  },
  // Open handles of the function would keep the process running.
  () => process.exit(),
);

/** The clock of V8's profiles. */
function micros(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}
