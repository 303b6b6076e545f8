import { connect } from "node:net";

/** How long a probe may take, in milliseconds: a server may accept a connection without answering. */
const PROBE_LIMIT = 1_000;

/** Whether a process accepts connections on this port of loopback. */
export function acceptsConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", () => answer(true)).once("error", () => answer(false));
  });
}

/** Whether an etcd node serves requests: without a leader, it accepts connections only. */
export async function isEtcdHealthy(port: number): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(PROBE_LIMIT);
    const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal });
    const { health } = (await answer.json()) as { readonly health: string };
    return health === "true";
  } catch {
    return false;
  }
}

/** Whether a Redis server serves requests: while it loads its data, it accepts connections only. */
export async function answersPing(port: number): Promise<boolean> {
  return (await ask(port, "PING\r\n")).startsWith("+PONG");
}

/** Whether a Redis server serves requests and, if it is a replica, is in sync with its primary. */
export async function isReplicaInSync(port: number): Promise<boolean> {
  if (!(await answersPing(port))) return false;
  const role = await ask(port, "ROLE\r\n");
  return role.includes("master") || role.includes("connected");
}

/** Whether a node of a Redis Cluster serves requests: all slots have a master, and a replica is in sync with its own. */
export async function isClusterNodeReady(port: number): Promise<boolean> {
  const info = await ask(port, "CLUSTER INFO\r\n");
  return info.includes("cluster_state:ok") && isReplicaInSync(port);
}

/** Whether a sentinel knows two others and a replica, and whether a server next to the sentinels serves requests. */
export async function isSentinelReady(port: number): Promise<boolean> {
  if (!(await ask(port, "ROLE\r\n")).includes("sentinel")) return isReplicaInSync(port);
  const masters = await ask(port, "SENTINEL MASTERS\r\n");
  const has = (field: string, least: number) =>
    Number(new RegExp(`${field}\\r\\n\\$\\d+\\r\\n(\\d+)`).exec(masters)?.[1]) >= least;
  return has("num-other-sentinels", 2) && has("num-slaves", 1);
}

/** Whether a PostgreSQL server accepts logins: while it starts, it refuses them. */
export async function acceptsLogins(port: number): Promise<boolean> {
  const parameters = Buffer.from("user\0postgres\0database\0postgres\0\0");
  const startup = Buffer.alloc(8 + parameters.length);
  startup.writeInt32BE(startup.length);
  startup.writeInt32BE(PROTOCOL_3, 4);
  parameters.copy(startup, 8);
  // The first byte of a request to authenticate.
  return (await ask(port, startup)).startsWith("R");
}

/** The version of PostgreSQL's protocol. */
const PROTOCOL_3 = 3 << 16;

/** Returns the first chunk of a server's answer to a request; "" without an answer. */
function ask(port: number, request: string | Buffer): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (text: string) => {
      socket.destroy();
      resolve(text);
    };
    socket.setTimeout(PROBE_LIMIT, () => answer(""));
    socket
      .once("connect", () => socket.write(request))
      .once("data", (data) => answer(String(data)))
      .once("error", () => answer(""))
      .once("close", () => answer(""));
  });
}

/**
 * Whether a ZooKeeper node opens sessions: without a quorum, it accepts connections only. The first session of a node takes
 * seconds on a busy core, in which the virtual machine loads its classes.
 */
export async function isZooKeeperServing(port: number): Promise<boolean> {
  const open = Buffer.alloc(49);
  open.writeInt32BE(open.length - 4);
  open.writeInt32BE(PROBE_LIMIT, 16);
  open.writeInt32BE(PASSWORD_LENGTH, 28);
  return (await ask(port, open)) !== "";
}

/** The length of the password of a session in ZooKeeper's protocol. */
const PASSWORD_LENGTH = 16;
