import { connect } from "node:net";

/** How long one probe may take, in milliseconds: a server may accept a connection and never answer. */
const PROBE_LIMIT = 1_000;

/** Whether somebody accepts connections on this port of loopback. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", () => answer(true)).once("error", () => answer(false));
  });
}

/** Whether an etcd node serves: without a leader it accepts connections, and nothing else. */
export async function isHealthy(port: number): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(PROBE_LIMIT);
    const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal });
    const { health } = (await answer.json()) as { readonly health: string };
    return health === "true";
  } catch {
    return false;
  }
}

/** Whether a ZooKeeper node serves: without a quorum it accepts connections, and says that it does not. */
export function isServing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    let said = "";
    const socket = connect({ port, host: "127.0.0.1" })
      .setTimeout(PROBE_LIMIT, () => socket.destroy())
      .on("data", (data) => {
        said += data;
      })
      .on("error", () => {})
      .on("close", () => resolve(/^Mode: /m.test(said)));
    socket.write("srvr");
  });
}
