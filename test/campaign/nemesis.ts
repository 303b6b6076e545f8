import { setTimeout as sleep } from "node:timers/promises";
import { hasEnded, type ServerNode } from "../../infra/servers/server.ts";
import type { Random } from "../simulation/random.ts";
import { processState } from "../support/process-state.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { until, within } from "../support/until.ts";
import type { History } from "./history.ts";
import { CLOCK_STEP } from "./judge.ts";
import type { Worker } from "./workload.ts";

/** The faults that every store of processes and wires has. */
const COMMON_FAULTS = [
  "contender killed",
  "contender frozen",
  "holder frozen past its ttl",
  "lockstep lock killed",
  "lockstep lock frozen",
  "connections reset",
  "connections dead silently",
  "answer lost",
  "request lost",
  "wire cut",
  "server killed",
  "server frozen",
  "server restarted",
] as const;

/** The faults that each store has in its own way, or not. */
const STORE_FAULTS = [
  "client's clock stepped",
  CLOCK_STEP,
  "leader killed",
  "leader replaced",
  "leader cut off",
  "compaction",
  "store full",
] as const;

export const FAULTS = [...COMMON_FAULTS, ...STORE_FAULTS] as const;
export type FaultName = (typeof FAULTS)[number];
export type StoreFault = (typeof STORE_FAULTS)[number];

/** Injects a fault and takes it back. Resolves to whether it met something; rejects if it could not happen. */
export type Fault = (context: FaultContext) => Promise<boolean>;

export interface FaultContext {
  readonly random: Random;

  /** Lasts between half a ttl and two ttls: the lock may pass to another holder meanwhile. */
  readonly pause: () => Promise<void>;

  /** Some faults call it when they are prepared, and act when it has resolved. */
  readonly ready?: () => Promise<void>;
}

/** The faults that a store has in its own way; a text says why it cannot have one. */
export type StoreFaults = Readonly<Record<StoreFault, Fault | string>> & {
  /** Why there are no wires, or no nodes that may be harmed. */
  readonly wires?: string;
  readonly nodes?: string;
};

/** How often a fault was injected and met something, or why a store does not have it. */
export type FaultCount =
  | { readonly tried: number; readonly met: number }
  | { readonly not: string };

export type FaultCounts = Readonly<Record<FaultName, FaultCount>>;

export interface NemesisOptions {
  readonly wires: readonly TcpProxy[];

  /** The server processes that may be killed and frozen. */
  readonly nodes: readonly ServerNode[];

  /** What an operator does before a killed process starts again. */
  readonly repair?: (node: ServerNode) => Promise<void>;

  /** Ends a server in an orderly way. */
  readonly stopSignal: "SIGTERM" | "SIGINT";

  readonly faults: StoreFaults;

  /** Both lists change as processes end and start. */
  readonly contenders: readonly Worker[];

  /** Processes of `lockstep lock`. */
  readonly commands: readonly Worker[];
  readonly history: History;
  readonly random: Random;

  /** In milliseconds. */
  readonly ttl: number;
}

/** Injects faults; the term is Jepsen's. */
export interface Nemesis {
  readonly counts: FaultCounts;

  /** How often a server had ended by itself, as MySQL does when its log does not fit the disk, and was started again. */
  readonly serversEnded: number;

  /**
   * Injects one fault after another until the signal aborts, then repairs the wires. Each fault comes once in a round,
   * which `random` orders.
   */
  run(signal: AbortSignal): Promise<void>;
}

/** The longest duration of a fault, in milliseconds. */
const FAULT_LIMIT = 120_000;

/** Creates a nemesis for the processes and servers of a campaign. */
export function createNemesis(options: NemesisOptions): Nemesis {
  const { history, random, ttl, wires, nodes, repair = async () => {} } = options;
  const faults = faultsOf(options);
  const counts = Object.fromEntries(
    FAULTS.map((name) => {
      const fault = faults[name];
      return [name, typeof fault === "string" ? { not: fault } : { tried: 0, met: 0 }];
    }),
  ) as Record<FaultName, FaultCount>;
  let serversEnded = 0;
  const context = { random, pause: () => sleep(ttl / 2 + random.below(ttl * 1.5)) };

  async function inject(operation: FaultName, fault: Fault): Promise<void> {
    const event = { client: "nemesis", operation } as const;
    history.addNow({ ...event, type: "invoke" });
    const hasMet = await within(FAULT_LIMIT, fault(context)).catch((error: Error) => error);
    const isMet = hasMet === true;
    const code = hasMet instanceof Error ? { code: hasMet.message } : {};
    history.addNow({ ...event, type: isMet ? "ok" : "fail", ...code });
    const { tried, met } = counts[operation] as { tried: number; met: number };
    counts[operation] = { tried: tried + 1, met: met + Number(isMet) };
  }

  /** Starts what has ended by itself, as a service manager does. */
  async function startEnded(): Promise<void> {
    const event = { client: "nemesis", operation: "start of an ended server" } as const;
    const starting = nodes
      .filter(({ hasEnded }) => hasEnded)
      .map(async (node) => {
        serversEnded += 1;
        history.addNow({ ...event, type: "invoke" });
        const start = repair(node).then(() => node.start());
        const error = await start.catch((reason: Error) => reason);
        history.addNow({
          ...event,
          ...(error ? { type: "fail", code: error.message } : { type: "ok" }),
        });
      });
    await Promise.all(starting);
  }

  return {
    counts,
    get serversEnded() {
      return serversEnded;
    },
    async run(signal) {
      while (!signal.aborted) {
        for (const name of shuffled(FAULTS, random)) {
          const fault = faults[name];
          if (signal.aborted || typeof fault === "string") continue;
          await startEnded();
          await inject(name, fault);
          await sleep(random.below(ttl / 4));
        }
      }
      await startEnded();
      for (const wire of wires) {
        wire.loseNothing();
        wire.mend();
      }
    },
  };
}

function faultsOf({
  wires,
  nodes,
  faults,
  repair = async () => {},
  stopSignal,
  contenders,
  commands,
  history,
  ttl,
}: NemesisOptions): Readonly<Record<FaultName, Fault | string>> {
  const onWire = (fault: (wire: TcpProxy, context: FaultContext) => Promise<boolean>) => {
    const at: Fault = (context) => {
      // A client of a cluster may use one node.
      const used = wires.filter(({ open }) => open > 0);
      return fault(context.random.pick(used.length > 0 ? used : wires), context);
    };
    return faults.wires ?? at;
  };
  const onNode = (act: (node: ServerNode, context: FaultContext) => Promise<boolean>) => {
    const at: Fault = async (context) => {
      const node = context.random.pick(nodes);
      return !node.hasEnded && act(node, context);
    };
    return faults.nodes ?? at;
  };
  const isHolder = ({ name }: Worker) => history.isHolder(name);
  const runningCommand = () => until(() => commands.find(({ child }) => !hasEnded(child)));
  return {
    ...faults,
    "contender killed": ({ random }) => kill(random.pick(contenders)),
    "contender frozen": ({ random, pause }) => freeze(random.pick(contenders), pause),
    "holder frozen past its ttl": async ({ random }) => {
      // The slow contenders come first: a fast one may have released its lock by now.
      const holder = await until(() => contenders.find(isHolder), ttl);
      return freeze(holder, () => sleep(ttl * (1.5 + random.float())));
    },
    "lockstep lock killed": async () => kill(await runningCommand()),
    "lockstep lock frozen": async ({ pause }) => freeze(await runningCommand(), pause),
    "connections reset": onWire(async (wire) => {
      const { open } = wire;
      wire.reset();
      return open > 0;
    }),
    "connections dead silently": onWire((wire) => drops(wire, () => wire.blackhole(), ttl)),
    "answer lost": onWire((wire, { random }) => {
      wire.loseNextAnswer(random.below(20));
      return hasLost(wire, ttl);
    }),
    "request lost": onWire((wire, { random }) => {
      wire.loseNextRequest(random.below(20));
      return hasLost(wire, ttl);
    }),
    "wire cut": onWire(async (wire, { pause }) => {
      const { dropped } = wire;
      wire.cut();
      await pause();
      wire.mend();
      return wire.dropped > dropped;
    }),
    "server killed": onNode(async (node, { random }) => {
      await node.kill("SIGKILL");
      await sleep(random.below(ttl));
      await repair(node);
      await node.start();
      return true;
    }),
    "server frozen": onNode(async (node, { pause }) => {
      const { pid } = node;
      await node.kill("SIGSTOP");
      await pause();
      const isFrozen = processState(pid) === "T";
      await node.kill("SIGCONT");
      return isFrozen;
    }),
    "server restarted": onNode(async (node) => {
      await node.kill(stopSignal);
      await node.start();
      return true;
    }),
  };
}

function shuffled<T>(all: readonly T[], random: Random): readonly T[] {
  return all
    .map((each) => ({ each, order: random.float() }))
    .sort((a, b) => a.order - b.order)
    .map(({ each }) => each);
}

/** Resolves to whether the kill, and nothing else, has ended the process. */
async function kill({ child }: Worker): Promise<boolean> {
  if (!child.kill("SIGKILL")) return false;
  await until(() => hasEnded(child));
  return child.signalCode === "SIGKILL";
}

/** Resolves to whether the process stood still at the end of the pause. */
async function freeze({ child }: Worker, pause: () => Promise<void>): Promise<boolean> {
  if (hasEnded(child) || !child.kill("SIGSTOP")) return false;
  await pause();
  const isFrozen = processState(child.pid) === "T";
  child.kill("SIGCONT");
  return isFrozen;
}

/** Resolves to whether the wire drops data within `limit` milliseconds. */
async function drops(wire: TcpProxy, begin: () => void, limit: number): Promise<boolean> {
  const { dropped } = wire;
  begin();
  return until(() => wire.dropped > dropped, limit).catch(() => false);
}

/** Resolves to whether the wire loses what it is to lose within `limit` milliseconds. */
async function hasLost(wire: TcpProxy, limit: number): Promise<boolean> {
  const lost = await until(() => !wire.isToLose, limit).catch(() => false);
  wire.loseNothing();
  return lost;
}
