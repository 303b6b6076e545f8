import { appendFileSync } from "node:fs";
import { appendFile } from "node:fs/promises";
import type { SQSEvent } from "aws-lambda";
import { z } from "zod";
import type { Lock } from "../../core/lock/lock.ts";
import { createRuntime, TerminalError, workflow } from "../../core/steps/index.ts";
import type { LambdaContext } from "../../functions/invocation/invocation.ts";
import { lazy, lockedHandler, queueHandler, sqs } from "../../functions/lambda/index.ts";
import { open } from "../../infra/open.ts";
import { pause } from "../support/until.ts";

/** Handlers for the Lambda host, on the store of LOCKSTEP_STORE. */

const opened = lazy(() => open(process.env.LOCKSTEP_STORE ?? ""));
const locks = async () => (await opened()).locks;

/** The number of events in this environment: above 1 it is warm. */
let events = 0;

export async function count(
  { fail, hang, exit }: Record<string, boolean>,
  context: LambdaContext,
): Promise<unknown> {
  events += 1;
  if (fail) throw new RangeError("as asked for");
  if (exit) process.exit(3);
  if (hang) await new Promise(() => setInterval(() => {}, 1_000));
  return { events, pid: process.pid, remaining: context.getRemainingTimeInMillis() };
}

/** Appends to a file every few milliseconds from the first event on. */
export async function tick({ file }: { readonly file: string }): Promise<void> {
  events += 1;
  if (events === 1) setInterval(() => appendFileSync(file, "."), 5);
  await pause(50);
}

/** Returns the body of the first message. */
export async function repeat({ Records: [record] }: SQSEvent): Promise<unknown> {
  return JSON.parse(record?.body ?? "");
}

let leaked: Promise<unknown> | undefined;

/** Returns while its work under the lock goes on. The next event returns the results of that work. */
export const leak = lockedHandler<{ readonly span: number }, unknown>(
  locks,
  { name: "leak", wait: 5_000 },
  async ({ span }, lock) => {
    const before = leaked && (await leaked);
    leaked = goOn(lock, span);
    return { before: before ?? null, fence: String(lock.fence) };
  },
);

async function goOn(lock: Lock, span: number): Promise<Record<string, string>> {
  await pause(span);
  const attempts = {
    assertHeld: () => lock.assertHeld(),
    fence: () => lock.fence,
    ensure: () => lock.ensure(1_000),
    signal: () => lock.signal.throwIfAborted(),
  };
  const said: Record<string, string> = {};
  for (const [name, attempt] of Object.entries(attempts)) {
    try {
      await attempt();
      said[name] = "worked";
    } catch (error) {
      said[name] = (error as { readonly code: string }).code;
    }
  }
  return said;
}

const Order = z.object({ orderId: z.string(), sku: z.string() });

/** Writes a line under the lock of the sku. "poison" fails, and the first attempt of "hang" is killed. */
const placeOrder = workflow(
  { name: "place-order", version: 1, input: Order, id: ({ orderId }) => orderId },
  async (ctx, { orderId, sku }) => {
    const lock = { names: `sku/${sku}`, onBusy: "suspend" } as const;
    await ctx.step("write", { lock, retry: false }, async () => {
      if (orderId.startsWith("poison")) throw new TerminalError("POISON");
      await appendFile(process.env.LINES ?? "", `${orderId}\n`);
    });
    const hang = { retry: false, semantics: "at-most-once" } as const;
    if (orderId.startsWith("hang")) await ctx.step("hang", hang, blockOnce);
  },
);

async function blockOnce(): Promise<void> {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

const runtime = lazy(async () => {
  const { journal, locks } = await opened();
  return createRuntime({ journal, locks, lease: Number(process.env.LEASE) });
});

export const orders = queueHandler(runtime, placeOrder, {
  reserve: 500,
  delay: sqs().delay,
  poison: {
    to: ({ record, error }) =>
      sqs().forward(process.env.POISON ?? "", record, {
        code: String((error as TerminalError).code),
      }),
  },
});
