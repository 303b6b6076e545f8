import type { ChildProcess } from "node:child_process";
import type { ServerNode } from "../../infra/servers/server.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import type { Point } from "./register.ts";

/** The holder that a fault meets. */
export interface Victim {
  readonly child: ChildProcess;

  /** Its own connections to the servers. */
  readonly wires: readonly TcpProxy[];

  /** One node of the servers. */
  readonly node: ServerNode;
}

/** Times are in ttls of the lock. */
export interface Fault {
  /** How it is told to readers. */
  readonly story: string;
  readonly at: Point;

  /** How long the holder works after its read. */
  readonly work: number;
  readonly lasts: number;
  begin(victim: Victim): void;
  end?(victim: Victim): unknown;
}

export const FAULTS = {
  none: {
    story: "nothing happens",
    ...{ at: "read", work: 0, lasts: 0 },
    begin() {},
  },
  "frozen at work": {
    story: "the holder's process stands still for two ttls while it works",
    ...{ at: "read", work: 0, lasts: 2 },
    begin: ({ child }) => child.kill("SIGSTOP"),
    end: ({ child }) => child.kill("SIGCONT"),
  },
  "frozen before its write": {
    story: "it stands still for two ttls after it has asked the lock, right before its write",
    ...{ at: "check", work: 0, lasts: 2 },
    begin: ({ child }) => child.kill("SIGSTOP"),
    end: ({ child }) => child.kill("SIGCONT"),
  },
  killed: {
    story: "the holder is killed",
    ...{ at: "read", work: 0, lasts: 0 },
    begin: ({ child }) => child.kill("SIGKILL"),
  },
  "cut off": {
    story: "the holder's connections pass nothing for three ttls, while it works for two",
    ...{ at: "read", work: 2, lasts: 3 },
    begin({ wires }) {
      for (const wire of wires) wire.cut();
    },
    end({ wires }) {
      for (const wire of wires) wire.mend();
    },
  },
  "connections reset": {
    story: "the holder's connections are reset once, while it works for one ttl",
    ...{ at: "read", work: 1, lasts: 1 },
    begin({ wires }) {
      for (const wire of wires) wire.reset();
    },
  },
  "server restarted": {
    story: "one server is killed and started again at once, while the holder works for two ttls",
    ...{ at: "read", work: 2, lasts: 2 },
    async begin({ node }) {
      await node.kill("SIGKILL");
      await node.start();
    },
  },
  "server frozen": {
    story: "one server stands still for two ttls, while the holder works a little longer",
    ...{ at: "read", work: 2.25, lasts: 2 },
    begin: ({ node }) => node.kill("SIGSTOP"),
    end: ({ node }) => node.kill("SIGCONT"),
  },
} as const satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof FAULTS;
