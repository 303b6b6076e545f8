import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { vi } from "vitest";

/** The answer of the Secrets Manager to the n-th call. */
type Answer = (request: IncomingMessage, response: ServerResponse, n: number) => void;

export const SECRET_ARN = "arn:aws:secretsmanager:eu-central-1:000000000000:secret:shop-AbCdEf";

/** A Secrets Manager over HTTP, which the environment of this process names until it is disposed of. */
export async function secretsManager(
  answer: Answer,
): Promise<{ readonly url: string } & Disposable> {
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    answer(request, response, calls);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  vi.stubEnv("AWS_ENDPOINT_URL_SECRETS_MANAGER", url);
  vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
  const close = () => {
    vi.unstubAllEnvs();
    server.close();
    server.closeAllConnections();
  };
  return { url, [Symbol.dispose]: close };
}
