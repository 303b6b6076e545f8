import type { ChildProcess } from "node:child_process";
import type { ServerNode } from "../../infra/servers/server.ts";
import { CLOCK_STEP } from "../campaign/judge.ts";
import type { StoreFault } from "../campaign/nemesis.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import type { Point } from "./ambush.ts";

/** The process that a fault meets. */
export interface Victim {
  readonly child: ChildProcess;

  /** Its own connections to the servers. */
  readonly wires: readonly TcpProxy[];

  /** What they had dropped before the fault. */
  readonly dropped: number;

  /** One node of the servers. */
  readonly node: ServerNode;
}

/** The holder of a lock that a fault meets. */
export interface Holder extends Victim {
  /** Kills the node and starts it again at once. */
  restart(): Promise<void>;

  /** Injects the fault of the campaigns that is needed. Resolves when the fault has been taken back. */
  inject(): Promise<void>;
}

/** Times are in ttls. */
export interface Fault<Met extends Victim = Victim> {
  /** How it is told to readers. */
  readonly story: string;
  readonly at: Point;

  /** How long the process works after it has been met. */
  readonly work: number;
  readonly lasts: number;

  /** May resolve when the fault is over. */
  begin(victim: Met): unknown;
  end?(victim: Met): unknown;
}

/** A fault of locks. Some stores cannot have it, and say why. */
export interface LockFault extends Fault<Holder> {
  readonly needs?: "wires" | StoreFault;
}

/** Returns how often connections have dropped data. */
export function droppedBy(wires: readonly TcpProxy[]): number {
  return wires.reduce((sum, wire) => sum + wire.dropped, 0);
}

type Action = Pick<Fault, "begin" | "end">;

const NOTHING: Action = { begin() {} };
const KILL: Action = { begin: ({ child }) => child.kill("SIGKILL") };

const FREEZE: Action = {
  begin: ({ child }) => child.kill("SIGSTOP"),
  end: ({ child }) => child.kill("SIGCONT"),
};

const FREEZE_SERVER: Action = {
  begin: ({ node }) => node.kill("SIGSTOP"),
  end: ({ node }) => node.kill("SIGCONT"),
};

const CUT: Action = {
  begin({ wires }) {
    for (const wire of wires) wire.cut();
  },
  end({ wires, dropped }) {
    for (const wire of wires) wire.mend();
    if (droppedBy(wires) === dropped) throw new Error("the cut connections had passed nothing on");
  },
};

/** A fault that the campaigns inject, too. */
function ofCampaigns(needs: StoreFault): Pick<LockFault, "needs" | "begin"> {
  return { needs, begin: ({ inject }) => inject() };
}

/** What meets the holders of locks. */
export const FAULTS = {
  none: {
    story: "nothing happens",
    ...{ at: "read", work: 0, lasts: 0, ...NOTHING },
  },
  "frozen at work": {
    story:
      "the holder's process stands still for two ttls while it works, and works on for a quarter of one: its lock has the time to notice",
    ...{ at: "read", work: 0.25, lasts: 2, ...FREEZE },
  },
  "frozen before its write": {
    story: "it stands still for two ttls after it has asked the lock, right before its write",
    ...{ at: "check", work: 0, lasts: 2, ...FREEZE },
  },
  killed: {
    story: "the holder is killed",
    ...{ at: "read", work: 0, lasts: 0, ...KILL },
  },
  "cut off": {
    story: "the holder's connections pass nothing for three ttls, while it works for two",
    ...{ at: "read", work: 2, lasts: 3, needs: "wires", ...CUT },
  },
  "connections reset": {
    story: "the holder's connections are reset once, while it works for one ttl",
    ...{ at: "read", work: 1, lasts: 1, needs: "wires" },
    begin({ wires }) {
      for (const wire of wires) wire.reset();
    },
  },
  "server restarted": {
    story: "one server is killed and started again at once, while the holder works for two ttls",
    ...{ at: "read", work: 2, lasts: 2 },
    begin: ({ restart }) => restart(),
  },
  "server frozen": {
    story: "one server stands still for two ttls, while the holder works a little longer",
    ...{ at: "read", work: 2.25, lasts: 2, ...FREEZE_SERVER },
  },
  [CLOCK_STEP]: {
    story:
      "the clock of the server, or of the one that leads, goes forward by 2 s to 10 s for one ttl, while the holder works for a quarter of one",
    ...{ at: "read", work: 0.25, lasts: 1, ...ofCampaigns(CLOCK_STEP) },
  },
  "leader killed": {
    story:
      "the server that leads is killed, and started again when another one leads, while the holder works for five ttls: its lock has the time to notice",
    ...{ at: "read", work: 5, lasts: 2, ...ofCampaigns("leader killed") },
  },
} as const satisfies Readonly<Record<string, LockFault>>;

export type FaultName = keyof typeof FAULTS;

/** Why some faults are not tried. */
export type Untried = Readonly<Partial<Record<FaultName, string>>>;

/** What meets the first executor of an operation, which is delivered to a second one at once. */
export const OPERATION_FAULTS = {
  none: {
    story: "nothing happens",
    ...{ at: "begin", work: 0, lasts: 0, ...NOTHING },
  },
  "frozen before its effect": {
    story: "the first executor stands still for two ttls before its effect",
    ...{ at: "begin", work: 0, lasts: 2, ...FREEZE },
  },
  "frozen after its effect": {
    story: "it stands still for two ttls between its effect and the record of it",
    ...{ at: "effect", work: 0, lasts: 2, ...FREEZE },
  },
  "killed before its effect": {
    story: "it is killed before its effect",
    ...{ at: "begin", work: 0, lasts: 0, ...KILL },
  },
  "killed after its effect": {
    story: "it is killed between its effect and the record of it",
    ...{ at: "effect", work: 0, lasts: 0, ...KILL },
  },
  "cut off": {
    story: "its connections to the store pass nothing for three ttls after its effect",
    ...{ at: "effect", work: 0, lasts: 3, ...CUT },
  },
  "server frozen": {
    story:
      "the store's server stands still for two ttls, while the first executor works for half of one",
    ...{ at: "begin", work: 0.5, lasts: 2, ...FREEZE_SERVER },
  },
} as const satisfies Readonly<Record<string, Fault>>;

export type OperationFaultName = keyof typeof OPERATION_FAULTS;
