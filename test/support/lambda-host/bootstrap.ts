import { Agent, type IncomingHttpHeaders, request } from "node:http";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

/**
 * bootstrap MODULE EXPORT: the process inside an environment. Asks the runtime API for an event, calls the handler,
 * answers, and asks for the next one, as AWS's own client does.
 */
const [module = "", name = ""] = process.argv.slice(2);
const base = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime`;
const agent = new Agent({ keepAlive: true });

type Handler = (event: unknown, context: object) => Promise<unknown>;

const handler: Handler = await load();
for (;;) await handleNext();

async function load(): Promise<Handler> {
  try {
    const exports = await import(pathToFileURL(module).href);
    if (typeof exports[name] !== "function") throw new TypeError(`${module} has no ${name}`);
    return exports[name];
  } catch (error) {
    await call("POST", "/init/error", toJson(error));
    process.exit(1);
  }
}

async function handleNext(): Promise<void> {
  const { headers, body } = await call("GET", "/invocation/next");
  const id = String(headers["lambda-runtime-aws-request-id"]);
  const endsAt = Number(headers["lambda-runtime-deadline-ms"]);
  const context = {
    awsRequestId: id,
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    invokedFunctionArn: headers["lambda-runtime-invoked-function-arn"],
    getRemainingTimeInMillis: () => endsAt - Date.now(),
  };
  const [outcome] = await Promise.allSettled([handler(JSON.parse(body), context)]);
  const path = `/invocation/${id}`;
  if (outcome.status === "rejected") await call("POST", `${path}/error`, toJson(outcome.reason));
  else await call("POST", `${path}/response`, JSON.stringify(outcome.value ?? null));
}

function toJson(error: unknown): string {
  const { name: errorType, message, stack = "" } = error as Error;
  return JSON.stringify({ errorType, errorMessage: message, trace: stack.split("\n") });
}

function call(method: string, path: string, sent?: string) {
  return new Promise<{ headers: IncomingHttpHeaders; body: string }>((resolve, reject) => {
    const outgoing = request(base + path, { method, agent }, async (response) =>
      resolve({ headers: response.headers, body: await text(response) }),
    );
    outgoing.on("error", reject);
    outgoing.end(sent);
  });
}
