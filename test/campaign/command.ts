import { setTimeout as sleep } from "node:timers/promises";
import { now, sendReport } from "./oracle.ts";

/** command ORACLE REQUESTED_AT TTL: the command of `lockstep lock`, which makes one read-modify-write. */
const [oracle = "", requestedAt = "", ttl = ""] = process.argv.slice(2);
const { LOCKSTEP_NAME: name = "", LOCKSTEP_FENCE: fence = "" } = process.env;
const holder = { name, fence, owner: `command-${process.pid}` };
const { value } = await sendReport(oracle, {
  type: "claim",
  ...holder,
  requestedAt,
  acquiredAt: now(),
});
await sleep(Math.random() * Number(ttl));
if (value !== undefined) await sendReport(oracle, { type: "write", ...holder, value: value + 1 });
