import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { tracked } from "../support/running.ts";
import { temporaryFile } from "../support/under-test.ts";

/** begin [files]: makes a temporary folder and a process as tests do, prints both as JSON, and waits for its end. */
const files = Number(process.argv[2] ?? 0);

const { file } = await temporaryFile();
for (let i = 0; i < files; i += 1) writeFileSync(join(dirname(file), `${i}`), "");
const { pid } = tracked(spawn("sleep", ["600"], { stdio: "ignore" }));
process.stdout.write(`${JSON.stringify({ file, pid })}\n`);
setInterval(() => {}, 1_000);
