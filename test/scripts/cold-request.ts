import { httpApiEvent, lambdaContext } from "../support/lambda.ts";

/** cold-request MODULE TOKEN: sends a request to a function, and prints its answer and the parts of Node that it loaded. */
const [module = "", token = ""] = process.argv.slice(2);
const { handler } = await import(module);
const headers = {
  authorization: `Bearer ${token}`,
  "content-type": "application/json",
  "idempotency-key": "count-1",
};
const event = httpApiEvent({
  ...{ method: "PUT", rawPath: "/stock/teapot", headers, body: '{"quantity":7}' },
});
const { statusCode } = await handler(event, lambdaContext());
const { moduleLoadList } = process as unknown as { readonly moduleLoadList: readonly string[] };
process.send?.({ statusCode, loaded: moduleLoadList }, () => process.exit());
