/** Where all copies of @opentelemetry/api 1.x look for the SDK that was registered with one of them. */
const REGISTERED = Symbol.for("opentelemetry.js.api.1");

/**
 * What OpenTelemetry's SDK is to be told, or undefined where no program has registered one: then its API need not be
 * loaded, which takes longer than most of what a cold start does.
 *
 * A copy of the API finds an SDK of its own minor version or a later one, so ours is not the latest.
 */
export async function openTelemetryIfRegistered() {
  return REGISTERED in globalThis ? import("./opentelemetry.ts") : undefined;
}
