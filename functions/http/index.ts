/** Runs and stock over HTTP: one app for AWS Lambda and fetch runtimes; `lockstep/http/node` serves it on Node. */
export type { AccessEntry, AccessLog } from "./access-log.ts";
export type { Limits } from "./admission.ts";
export { type App, createApp, type Platform } from "./app.ts";
export {
  type Asked,
  type Authorize,
  type BearerToken,
  bearer,
  type Granted,
  gatewayAuthorizer,
  type Verdict,
} from "./auth.ts";
export { type HttpHandler, type HttpHandlerOptions, httpHandler } from "./lambda.ts";
export type { AppOptions } from "./options.ts";
export type { Page } from "./page.ts";
export { Trail } from "./trail.ts";
