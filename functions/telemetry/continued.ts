import { context, propagation, trace } from "@opentelemetry/api";

/** The same app; a span that a request's headers name is the parent of what is done for it. */
export function continued<Rest extends readonly unknown[], Answer>(app: {
  fetch(request: Request, ...rest: Rest): Answer;
}) {
  const fetch = (request: Request, ...rest: Rest): Answer => {
    // An instrumentation of the server has done it already.
    if (trace.getActiveSpan()) return app.fetch(request, ...rest);
    const parent = propagation.extract(context.active(), request.headers, {
      get: (headers, key) => headers.get(key) ?? undefined,
      keys: (headers) => [...headers.keys()],
    });
    return context.with(parent, () => app.fetch(request, ...rest));
  };
  return { fetch };
}
