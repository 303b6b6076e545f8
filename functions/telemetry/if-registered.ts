/** The global in which all copies of @opentelemetry/api 1.x find the registered SDK. */
const REGISTERED = Symbol.for("opentelemetry.js.api.1");

/**
 * Loads the OpenTelemetry adapter if the program has registered an SDK, else returns undefined. Loading the API takes
 * longer than most parts of a cold start.
 *
 * A copy of the API finds an SDK of its own minor version or a later one, so this package does not use the latest API.
 */
export async function openTelemetryIfRegistered() {
  return REGISTERED in globalThis ? import("./opentelemetry.ts") : undefined;
}
