import { setTimeout as sleep } from "node:timers/promises";
import { now, tell } from "./oracle.ts";

/** command ORACLE REQUESTED_AT TTL: one read-modify-write, as the command that `lockstep lock` runs. */
const [oracle = "", requestedAt = "", ttl = ""] = process.argv.slice(2);
const { LOCKSTEP_NAME: name = "", LOCKSTEP_FENCE: fence = "" } = process.env;
const holder = { name, fence, owner: `command-${process.pid}` };
const { value } = await tell(oracle, { type: "claim", ...holder, requestedAt, acquiredAt: now() });
await sleep(Math.random() * Number(ttl));
if (value !== undefined) await tell(oracle, { type: "write", ...holder, value: value + 1 });
