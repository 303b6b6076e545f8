/** Serves runs and stock over HTTP: one app for AWS Lambda and fetch runtimes; `lockstep/http/node` serves it on Node. */
export { type App, createApp, type Platform } from "./app.ts";
export { type Authorize, bearer, gatewayAuthorizer } from "./auth.ts";
export { httpHandler } from "./lambda.ts";
export type { AccessLogEntry, DocsPage } from "./options.ts";
export type { RequestHead } from "./request.ts";
export { StepLog } from "./step-log.ts";
