import { startServer } from "../../infra/servers/start.ts";
import { orMissing } from "./missing.ts";

/** A DynamoDB Local that all tests share: each test uses a table of its own. */
export interface DynamodbServer {
  readonly name: "dynamodb";
  readonly port: number;
}

export async function startDynamodbServers(say: (step: string) => void) {
  const shape: DynamodbServer = { name: "dynamodb", port: 0 };
  return [await orMissing(start(say), shape)];
}

async function start(say: (step: string) => void) {
  const { nodes, stop } = await startServer("dynamodb", { onProgress: say });
  const about: DynamodbServer = { name: "dynamodb", port: nodes[0]?.config.port ?? 0 };
  return { about, stop };
}
