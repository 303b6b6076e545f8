import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";

/** A server of this process that answers JSON with JSON, for processes that the tests start. */
export interface JsonServer {
  readonly url: string;
  close(): void;
}

export async function serveJson<Question, Answer>(
  answer: (question: Question) => Answer,
): Promise<JsonServer> {
  const server = createServer(async (request, response) => {
    response.end(JSON.stringify(answer((await json(request)) as Question)));
  });
  // A connection that is closed while its client reuses it would lose a question.
  server.keepAliveTimeout = 0;
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

export async function ask<Answer>(url: string, question: unknown): Promise<Answer> {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(question) });
  return (await answer.json()) as Answer;
}
