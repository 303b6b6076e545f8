import { setTimeout as sleep } from "node:timers/promises";
import { CONTESTANTS, type Contestant, type ContestantName } from "./locks.ts";
import type { Held } from "./named-lock.ts";
import { send } from "./register.ts";

/** contender LOCK OPTIONS REGISTER: reads the register, works, asks the lock, and writes, again and again under the lock. */
const [name = "", options = "", register = ""] = process.argv.slice(2);
const { pid } = process;
const contestant: Contestant = CONTESTANTS[name as ContestantName];
const lock = await contestant.open(JSON.parse(options));
for (let turn = 1; ; turn += 1) {
  // An error is the lock's answer to a fault, or that it is taken.
  await lock.withLock((held) => increase(`${pid}-${turn}`, held)).catch(() => {});
  await sleep(20);
}

async function increase(holder: string, { isHeld, fence }: Held): Promise<void> {
  const fenced = fence === undefined ? {} : { fence };
  const { value, work } = await send(register, { type: "read", pid, holder, ...fenced });
  if (value === undefined) return;
  await sleep(work);
  const held = isHeld();
  await send(register, { type: "check", pid, holder, isHeld: held });
  if (held) await send(register, { type: "write", pid, holder, value: value + 1, ...fenced });
}
