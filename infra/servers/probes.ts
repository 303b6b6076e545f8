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
  return (await ask(port, "PING")).startsWith("+PONG");
}

/** Whether a Redis server serves requests and, if it is a replica, is in sync with its primary. */
export async function isReplicaInSync(port: number): Promise<boolean> {
  if (!(await answersPing(port))) return false;
  const role = await ask(port, "ROLE");
  return role.includes("master") || role.includes("connected");
}

/** Returns the first chunk of a Redis server's answer to a command; "" without an answer. */
function ask(port: number, command: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (text: string) => {
      socket.destroy();
      resolve(text);
    };
    socket.setTimeout(PROBE_LIMIT, () => answer(""));
    socket
      .once("connect", () => socket.write(`${command}\r\n`))
      .once("data", (data) => answer(String(data)))
      .once("error", () => answer(""))
      .once("close", () => answer(""));
  });
}

/** Whether a ZooKeeper node serves requests: without a quorum, it accepts connections and reports no mode. */
export function isZooKeeperServing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    let answer = "";
    const socket = connect({ port, host: "127.0.0.1" })
      .setTimeout(PROBE_LIMIT, () => socket.destroy())
      .on("data", (data) => {
        answer += data;
      })
      .on("error", () => {})
      .on("close", () => resolve(/^Mode: /m.test(answer)));
    socket.write("srvr");
  });
}
