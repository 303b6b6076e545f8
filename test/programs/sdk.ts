import { appendFileSync } from "node:fs";
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

/** Registers OpenTelemetry's SDK by `--import`. Its spans are written as lines of a file. */

const exporter = {
  export(spans: readonly ReadableSpan[], done: (result: { code: number }) => void) {
    for (const span of spans) {
      const { traceId, spanId } = span.spanContext();
      const parentId = span.parentSpanContext?.spanId;
      const line = JSON.stringify({ name: span.name, traceId, spanId, parentId });
      appendFileSync(process.env.SPANS ?? "/dev/null", `${line}\n`);
    }
    done({ code: 0 });
  },
  shutdown: async () => {},
};

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
const spanProcessors = [new SimpleSpanProcessor(exporter)];
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
