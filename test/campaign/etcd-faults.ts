import { until } from "../support/until.ts";
import type { Fault } from "./nemesis.ts";

/** The faults of etcd, by its JSON gateway. `ports` are those of all nodes. */

/** The bytes of etcd's database: more than the records of a million sales. */
export const QUOTA = 600_000_000;

/** How long a request may take, in milliseconds: a node may be frozen or dead. */
const LIMIT = 10_000;

interface Status {
  readonly header: { readonly member_id: string; readonly revision: string };
  readonly leader: string;
}

async function ask<Answer>(port: number | undefined, path: string, body: object): Promise<Answer> {
  const answer = await fetch(`http://127.0.0.1:${port}/v3/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(LIMIT),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${text}`);
  return JSON.parse(text) as Answer;
}

/** Returns the index of the node that the majority of nodes names as their leader. */
export async function leaderAmong(ports: readonly number[]): Promise<number> {
  const said = await statuses(ports);
  const votes = (id: string | undefined) =>
    said.filter((each) => each && each.leader === id).length;
  const found = said.findIndex((each) => each && votes(each.header.member_id) > ports.length / 2);
  if (found < 0) throw new Error("there is no leader");
  return found;
}

function statuses(ports: readonly number[]): Promise<readonly (Status | undefined)[]> {
  return Promise.all(
    ports.map((port) => ask<Status>(port, "maintenance/status", {}).catch(() => undefined)),
  );
}

/** Makes a follower the leader. */
export async function moveLeader(ports: readonly number[]): Promise<boolean> {
  const leader = await leaderAmong(ports);
  const follower = (leader + 1) % ports.length;
  const targetID = (await statuses(ports))[follower]?.header.member_id;
  await ask(ports[leader], "maintenance/transfer-leadership", { targetID });
  const isMoved = async () => (await leaderAmong(ports)) === follower;
  return until(() => isMoved().catch(() => false), LIMIT);
}

/** Deletes all old revisions, while waiters watch keys. */
export async function compact(ports: readonly number[]): Promise<boolean> {
  const key = Buffer.from("campaign-compaction").toString("base64");
  const { header } = await ask<Status>(ports[0], "kv/put", { key, value: key });
  await ask(ports[0], "kv/compaction", { revision: header.revision });
  return true;
}

/** How many writes fill the store at a time. */
const WRITERS = 8;

/** Uses up the quota, and makes room again after a while. */
export function fill(ports: readonly number[]): Fault {
  const [port] = ports;
  const key = Buffer.from("campaign-junk").toString("base64");
  const value = Buffer.alloc(1_000_000).toString("base64");
  const makeRoom = async () => {
    const { header } = await ask<Status>(port, "kv/deleterange", { key });
    // `physical`: the old revisions are gone with the answer. Otherwise the files would be as large as before.
    const compaction = { revision: header.revision, physical: true };
    await ask(port, "kv/compaction", compaction).catch(() => {});
    for (const each of ports) await ask(each, "maintenance/defragment", {});
    const { alarms = [] } = await ask<{ alarms?: readonly object[] }>(
      port,
      "maintenance/alarm",
      {},
    );
    for (const alarm of alarms) {
      await ask(port, "maintenance/alarm", { action: "DEACTIVATE", ...alarm });
    }
    await ask(port, "kv/put", { key, value: key });
    return true;
  };
  return async ({ pause }) => {
    const put = () =>
      ask(port, "kv/put", { key, value }).then(
        () => undefined,
        (error: Error) => error.message,
      );
    // Side by side, they share their writes to the disk.
    const putAll = () => Promise.all(Array.from({ length: WRITERS }, put));
    const refused = await until(async () => (await putAll()).find(Boolean));
    await pause();
    await until(() => makeRoom().catch(() => false));
    return refused.includes("space exceeded");
  };
}
