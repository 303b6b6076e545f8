import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A server of DynamoDB behind a policy, which DynamoDB Local itself does not check. */
export interface PolicedDynamodb extends AsyncDisposable {
  readonly url: string;

  /** The actions of all requests that were allowed. */
  readonly used: ReadonlySet<string>;
}

/** Refuses requests for another table, and requests of which an action is not among `actions`. */
export async function policedDynamodb(
  target: string,
  { table, actions }: { readonly table: string; readonly actions: readonly string[] },
): Promise<PolicedDynamodb> {
  const used = new Set<string>();
  const server = createServer(async (request, response) => {
    const { host: _, connection: __, ...headers } = request.headers;
    const body = await text(request);
    const needed = actionsOf(String(headers["x-amz-target"]), JSON.parse(body), table);
    const denied = needed.find((action) => !actions.includes(action));
    if (denied !== undefined) {
      response.writeHead(400, { "content-type": "application/x-amz-json-1.0" });
      const message = `not authorized to perform: ${denied}`;
      response.end(JSON.stringify({ __type: "AccessDeniedException", message }));
      return;
    }
    for (const action of needed) used.add(action);
    const own = headers as Readonly<Record<string, string>>;
    const answer = await fetch(target, { method: "POST", headers: own, body });
    const date = answer.headers.get("date") ?? "";
    response.writeHead(answer.status, { "content-type": "application/x-amz-json-1.0", date });
    response.end(await answer.text());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${port}`, used, [Symbol.asyncDispose]: close };
}

interface Body {
  readonly TableName?: string;
  readonly RequestItems?: Readonly<Record<string, object>>;
  readonly TransactItems?: readonly Readonly<Record<string, { readonly TableName: string }>>[];
}

/** The actions that IAM checks for a request. One on another table gets the name of that table. */
function actionsOf(operation: string, body: Body, table: string): readonly string[] {
  const name = operation.split(".")[1] ?? "";
  const parts = (body.TransactItems ?? []).flatMap((item) => Object.entries(item));
  const single = Object.keys(body.RequestItems ?? {}).concat(body.TableName ?? []);
  return [
    ...parts.map(([kind, { TableName }]) => [TRANSACTED[kind] ?? kind, TableName]),
    ...single.map((one) => [name, one]),
  ].map(([action, on]) => `dynamodb:${action}${on === table ? "" : ` on ${on}`}`);
}

/** The actions of the parts of TransactWriteItems. */
const TRANSACTED: Readonly<Record<string, string>> = {
  Put: "PutItem",
  Update: "UpdateItem",
  Delete: "DeleteItem",
  ConditionCheck: "ConditionCheckItem",
};
