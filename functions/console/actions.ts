import * as z from "zod";
import type { Inventory } from "../../core/inventory/inventory.ts";
import { FENCE_TEXT } from "../../core/lock/fence.ts";
import type { LockInfo, LockStore } from "../../core/lock/lock.ts";
import { usualTtl } from "../../core/lock/request.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { Problem } from "../http/problem.ts";
import { fenceOut } from "./fence-out.ts";
import { freezeHolder, killHolder } from "./processes.ts";

interface ActionServices {
  readonly locks: LockStore;
  readonly inventory: Inventory | undefined;
  readonly runtime: Runtime | undefined;

  /** Whether the console may freeze and kill the processes of holders. */
  readonly isDev: boolean;
}

/** Performs an action, and resolves to what has happened, in a few words. */
type Perform = (input: unknown, services: ActionServices) => Promise<string>;

/** Defines an action. The user has typed `confirm`, which must be the name of what the action changes. */
function action<S extends z.ZodRawShape>(
  shape: S,
  target: (input: z.output<z.ZodObject<S>>) => string,
  perform: (input: z.output<z.ZodObject<S>>, services: ActionServices) => Promise<string>,
): Perform {
  const schema = z.object(shape);
  return async (body, services) => {
    const input = schema.parse(body);
    if (Object(body).confirm !== target(input)) {
      throw new Problem(400, "NOT_CONFIRMED", "the typed name is another one; nothing was done");
    }
    return perform(input, services);
  };
}

const Id = z.string().min(1).max(512);
const FenceText = z.string().regex(FENCE_TEXT, "is not a fence as the page shows it");
const Whole = z.number().int().min(1);

/** The actions by their names in the URL. */
export const ACTIONS: Readonly<Record<string, Perform>> = {
  release: action(
    { lock: Id, fence: FenceText },
    ({ lock }) => lock,
    async ({ lock, fence }, { locks, inventory }) => {
      const { holder } = await locks.release(lock, { fence });
      const isRefused = inventory !== undefined && (await fenceOut(inventory, locks, lock));
      const from = isRefused ? "at once" : "as soon as the next holder has claimed the resource";
      return `released; ${holder} had it, and its late writes are refused ${from}`;
    },
  ),

  freeze: action(
    { lock: Id, fence: FenceText },
    ({ lock }) => lock,
    async ({ lock, fence }, services) => {
      const { about } = await heldWith(lock, fence, services);
      return `process ${freezeHolder(about)} is frozen for 5 s`;
    },
  ),

  kill: action(
    { lock: Id, fence: FenceText },
    ({ lock }) => lock,
    async ({ lock, fence }, services) => {
      const { about } = await heldWith(lock, fence, services);
      return `process ${killHolder(about)} is killed; its lock expires by itself`;
    },
  ),

  cancel: action(
    { run: Id },
    ({ run }) => run,
    async ({ run }, services) => runtimeOf(services).cancel(run),
  ),

  retry: action(
    { run: Id },
    ({ run }) => run,
    async ({ run }, services) => runtimeOf(services).retry(run),
  ),

  fork: action(
    { run: Id, from: Id, as: Id.optional() },
    ({ run }) => run,
    async ({ run, from, as }, services) =>
      `started as ${await runtimeOf(services).fork(run, { from, as })}`,
  ),

  signal: action(
    { run: Id, name: Id, payload: z.unknown(), dedupeId: Id },
    ({ run }) => run,
    async ({ run, name, payload, dedupeId }, services) =>
      runtimeOf(services).signal(run, name, payload, { dedupeId }),
  ),

  limit: action(
    { queue: Id, concurrency: Whole.optional(), perKey: Whole.optional() },
    ({ queue }) => queue,
    async ({ queue, concurrency, perKey }, services) => {
      const { journal } = runtimeOf(services);
      const { locks } = services;
      const change = async () => {
        const before = (await journal.limits()).get(queue);
        await journal.setLimits(queue, {
          ...before,
          ...(concurrency !== undefined && { concurrency }),
          ...(perKey !== undefined && { perKey }),
        });
      };
      // Two users may change two limits of the queue at once.
      const ttl = usualTtl(locks);
      await locks.withLock(`console/limits/${queue}`, { ttl, wait: ttl }, change);
      return "set, from the next claim on";
    },
  ),
};

/** Resolves to the lock if it is still held with this fence: the user may have looked at an earlier holder. */
async function heldWith(
  lock: string,
  fence: string,
  { locks, isDev }: ActionServices,
): Promise<LockInfo> {
  if (!isDev)
    throw new Problem(403, "DEV_ONLY", "only the console of lockstep dev freezes and kills");
  const info = await locks.inspect(lock);
  if (info.holder !== undefined && info.fence === fence) return info;
  throw new Problem(409, "OTHER_HOLDER", "the lock has another holder by now, or none");
}

function runtimeOf({ runtime }: ActionServices): Runtime {
  if (runtime) return runtime;
  throw new Problem(404, "MISSING_PART", "the store has no journal");
}
