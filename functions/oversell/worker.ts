import { type AnyStore, open } from "../../infra/open.ts";
import type { FromWorker, ToWorker } from "./messages.ts";
import { type InjectFault, OrderHandler } from "./order-handler.ts";

/** A worker process of the shop: handles one order at a time, like a serverless function. */

let opened: AnyStore | undefined;
let locks: AnyStore | undefined;
let handler: OrderHandler | undefined;
let wake: (() => void) | undefined;

process.on("message", (message: ToWorker) => {
  receive(message).catch((error) =>
    send({ type: "error", message: String(error?.stack ?? error) }),
  );
});
process.on("disconnect", () => process.exit());

async function receive(message: ToWorker): Promise<void> {
  if (message.type === "configure") {
    opened ??= await open(message.config.store);
    if (message.config.locks !== undefined) locks ??= await open(message.config.locks);
    handler = new OrderHandler(opened, message.config, injectFault, locks);
    await send({ type: "ready" });
  } else if (message.type === "wake") {
    wake?.();
  } else if (handler) {
    const handled = await handler.handle(message.delivery, message.startedAt);
    await send({ type: "answer", handled });
  }
}

const injectFault: InjectFault = async (fault, trace) => {
  if (fault === "freeze") {
    trace.add("freezes");
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    await send({ type: "freezing" });
    await woken;
    trace.add("wakes");
  } else {
    trace.add("dies");
    await send({ type: "dying", handled: { answer: "killed", trace: trace.events } });
    process.kill(process.pid, "SIGKILL");
    await new Promise(() => {});
  }
};

function send(message: FromWorker): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}
