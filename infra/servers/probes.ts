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

/** Whether a Redis server serves: one that loads its data accepts connections, and answers nothing else. */
export async function pongs(port: number): Promise<boolean> {
  return (await ask(port, "PING")).startsWith("+PONG");
}

/** Whether a Redis server serves and, if it is a replica, has all that its primary has. */
export async function isInSync(port: number): Promise<boolean> {
  if (!(await pongs(port))) return false;
  const role = await ask(port, "ROLE");
  return role.includes("master") || role.includes("connected");
}

/** What a Redis server answers to a command, as far as it comes at once; "" if nothing does. */
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
