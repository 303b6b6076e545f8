import { createHash } from "node:crypto";
import { type Context, Hono, type MiddlewareHandler } from "hono";
import { secureHeaders } from "hono/secure-headers";
import * as z from "zod";
import type { Inventory } from "../../core/inventory/inventory.ts";
import type { RunQuery } from "../../core/journal/queries.ts";
import { RUN_STATUSES } from "../../core/journal/runs.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { unknownRun } from "../../core/steps/errors.ts";
import { formatJson } from "../display/format-json.ts";
import { holdersFor } from "../display/holders.ts";
import { timelineOf } from "../display/timeline.ts";
import { bearer } from "../http/auth.ts";
import { jsonBody } from "../http/body.ts";
import type { FetchApp } from "../http/lambda.ts";
import { Problem, problemBody, problemHeaders, toProblem } from "../http/problem.ts";
import { fetchRequest } from "../http/request.ts";
import { digits } from "../http/schemas.ts";
import { shownError, shownValue } from "../json/shown-value.ts";
import { readIncidents } from "../telemetry/incident-records.ts";
import { ACTIONS } from "./actions.ts";
import { fromOwnPage, OWN_HEADER, withToken } from "./guard.ts";
import type { PageFile } from "./page-files.ts";
import {
  type ConsoleInfo,
  type ConsolePart,
  type LocksAnswer,
  MOST_ROWS,
  type QueuesAnswer,
  type StockAnswer,
} from "./shapes.ts";

export interface ConsoleOptions {
  /** The URLs of the stores, without secrets, as the page shows them. */
  readonly addresses: Pick<ConsoleInfo, "store" | "locks">;
  readonly locks: LockStore;

  /** Undefined for stores without stock. */
  readonly inventory: Inventory | undefined;

  /** Reads runs and acts on them. Undefined for stores without a journal. Asked anew for each request. */
  readonly runtime: Runtime | undefined;
  readonly page: ReadonlyMap<string, PageFile>;

  /** The bearer token of all requests but those for the page itself. Undefined: none is needed. */
  readonly token: string | undefined;

  /** Whether the server listens on loopback alone: other names of the host are refused then. */
  readonly isLocal: boolean;

  /** Refuses all actions. */
  readonly readOnly: boolean;

  /** Whether to freeze and kill the processes of holders on request. */
  readonly isDev: boolean;

  /** Called with each error that a response hides. */
  readonly onError: (error: unknown) => void;
}

/** Serves a console beside an app: the console has / and what is under /console. */
export function withConsole(app: FetchApp, page: Hono): FetchApp {
  return {
    fetch(request, platform) {
      const { pathname } = new URL(request.url);
      const isOfPage = pathname === "/" || pathname.startsWith("/console/");
      return isOfPage ? page.fetch(request) : app.fetch(request, platform);
    },
  };
}

/** Creates the console: a page at /, and what the page reads under /console. */
export function createConsole(options: ConsoleOptions): Hono {
  const { page, token, isLocal, onError } = options;
  const app = new Hono();
  app.use(headers);
  for (const [path, { type, body }] of page) {
    app.get(path, (c) => c.body(body, 200, { "Content-Type": type, "Cache-Control": "no-cache" }));
  }
  app.use("/console/api/*", fromOwnPage(isLocal));
  if (token !== undefined) app.use("/console/api/*", withToken(bearer([token])));
  app.use("/console/api/*", withOrigin(options));
  app.route("/console/api", readsOf(options));
  app.post("/console/api/actions/:name", (c) => perform(c, options));
  app.notFound((c) => c.text("not found", 404));
  app.onError((error, c) => {
    const problem = toProblem(invalidOf(error) ?? error);
    if (problem.status >= 500) onError(problem.cause ?? problem);
    const body = problemBody(problem, "");
    return c.body(JSON.stringify(body), problem.status, problemHeaders(problem));
  });
  return app;
}

const headers = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    connectSrc: ["'self'"],
    imgSrc: ["data:"],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
    requireTrustedTypesFor: ["'script'"],
    trustedTypes: ["lit-html"],
  },
  xFrameOptions: "DENY",
  referrerPolicy: "no-referrer",
  strictTransportSecurity: false,
});

/** Returns the problem of an argument that is refused by its schema or by the store. */
function invalidOf(error: unknown): Problem | undefined {
  if (error instanceof RangeError) return new Problem(400, "INVALID", error.message);
  if (!(error instanceof z.ZodError)) return undefined;
  const [issue] = error.issues;
  return new Problem(400, "INVALID", `${issue?.path.join(".")}: ${issue?.message}`);
}

/** Says with each answer which console it comes from, and when, by the server's clock. */
function withOrigin(options: ConsoleOptions): MiddlewareHandler {
  return async (c, next) => {
    await next();
    c.header(OWN_HEADER, servedBy(options));
    c.header("lockstep-now", String(Date.now()));
  };
}

function infoOf({ addresses, inventory, runtime, readOnly, isDev }: ConsoleOptions): ConsoleInfo {
  const has: readonly ConsolePart[] = [
    ...(inventory ? (["inventory"] as const) : []),
    ...(runtime ? (["journal"] as const) : []),
  ];
  return { ...addresses, has, readOnly, isDev };
}

/** Returns the same text for consoles of the same stores and options: a load balancer may stand before several processes. */
function servedBy(options: ConsoleOptions): string {
  return createHash("sha256")
    .update(JSON.stringify(infoOf(options)))
    .digest("hex");
}

/** Performs an action of a user who has typed its target. */
async function perform(c: Context, options: ConsoleOptions): Promise<Response> {
  const name = c.req.param("name") ?? "";
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (!action) throw new Problem(404, "NOT_FOUND", "the action does not exist");
  if (options.readOnly)
    throw new Problem(403, "READ_ONLY", "the console was started with --read-only");
  if (c.req.header(OWN_HEADER) !== servedBy(options)) {
    const detail =
      "the console was started with another store or other options than the page shows; nothing was done, load the page again";
    throw new Problem(409, "OTHER_CONSOLE", detail);
  }
  return c.json({
    done: await action(await jsonBody(fetchRequest(c), LONGEST_BODY, c.req.raw.signal), options),
  });
}

/** The most bytes of an action's request: the payload of a signal. */
const LONGEST_BODY = 262_144;

function readsOf(options: ConsoleOptions): Hono {
  const { locks, inventory } = options;
  const api = new Hono();
  const send = (value: unknown) =>
    new Response(formatJson(value), {
      headers: { "Content-Type": "application/json", "Cache-Control": "no-store" },
    });

  api.get("/info", () => send(infoOf(options)));

  api.get("/incidents", async () => send({ incidents: await readIncidents(locks) }));

  api.get("/locks", async (c) => {
    const { filter } = Filter.parse(c.req.query());
    const found = (await locks.list()).filter(({ name, holder, about }) =>
      [name, holder, about?.value, about?.command, about?.run].some((text) =>
        text?.toLowerCase().includes(filter.toLowerCase()),
      ),
    );
    const answer: LocksAnswer = { locks: found.slice(0, MOST_ROWS), total: found.length };
    return send(answer);
  });

  api.get("/lock", async (c) => send(await locks.inspect(Name.parse(c.req.query()).name)));

  api.get("/stock", async (c) => {
    const { prefix, after } = StockQuery.parse(c.req.query());
    const levels = await present("inventory", inventory).list({
      prefix,
      after,
      limit: MOST_ROWS + 1,
    });
    const answer: StockAnswer = {
      levels: levels.slice(0, MOST_ROWS),
      hasMore: levels.length > MOST_ROWS,
    };
    return send(answer);
  });

  api.get("/sku", async (c) => {
    const { sku, before } = Sku.parse(c.req.query());
    const stock = present("inventory", inventory);
    const [level, reservations, entries] = await Promise.all([
      stock.get(sku),
      stock.reservations(sku, { limit: MOST_ROWS }),
      stock.history(sku, { limit: MOST_ROWS, ...(before !== undefined && { before }) }),
    ]);
    return send({ level, reservations, entries });
  });

  api.get("/runs", async (c) => {
    const query = RunFilter.parse(c.req.query());
    const { journal } = present("journal", options.runtime);
    const runs = await journal.list({ ...(query as RunQuery), limit: MOST_ROWS });
    return send({ runs: runs.map((run) => ({ ...run, error: shownProblem(run.error) })) });
  });

  api.get("/queues", async (c) => {
    const { filter } = Filter.parse(c.req.query());
    const { journal } = present("journal", options.runtime);
    const [depths, limits] = await Promise.all([journal.queueDepths(), journal.limits()]);
    const found = depths.filter(({ queue }) => queue.toLowerCase().includes(filter.toLowerCase()));
    const queues = found
      .slice(0, MOST_ROWS)
      .map((depth) => ({ ...depth, ...limits.get(depth.queue) }));
    return send({ queues, total: found.length } satisfies QueuesAnswer);
  });

  api.get("/run", async (c) => {
    const { id, after, part } = Run.parse(c.req.query());
    const run = await present("journal", options.runtime).show(id, { after, part });
    if (!run) throw unknownRun(id);
    const { input, records: _, signals, ending, error, ...info } = run;
    const holders = await holdersFor(run, locks);
    return send({
      ...info,
      input: text(shownValue(input)),
      output: ending?.status === "completed" ? text(shownValue(ending.value)) : undefined,
      compensated: ending?.compensated,
      endedAt: ending?.at,
      error: shownProblem(ending && ending.status !== "completed" ? ending.value : error),
      signals: signals.map(({ name, at }) => ({ name, at })),
      bars: timelineOf(run),
      holders: Object.fromEntries(holders),
    });
  });

  return api;
}

/** How many characters of a value the page shows. */
const LONGEST_SHOWN = 4_000;

function text(value: unknown): string {
  const json = formatJson(value) ?? "nothing";
  return json.length > LONGEST_SHOWN
    ? `${json.slice(0, LONGEST_SHOWN)}… (${json.length} characters)`
    : json;
}

function shownProblem(encoded: string | undefined): string | undefined {
  if (encoded === undefined) return undefined;
  const { name, code, message } = shownError(encoded);
  return `${code ?? name}: ${message}`;
}

function present<T>(part: ConsolePart, value: T | undefined): T {
  if (value !== undefined) return value;
  throw new Problem(404, "MISSING_PART", `the store has no ${part}`);
}

const Filter = z.object({ filter: z.string().max(512).default("") });
const Name = z.object({ name: z.string().min(1) });
const StockQuery = z.object({ prefix: z.string().default(""), after: z.string().default("") });
const Sku = z.object({
  sku: z.string().min(1),
  before: digits(0, Number.MAX_SAFE_INTEGER).optional(),
});
const Run = z.object({
  id: z.string().min(1),
  after: z.string().optional(),
  part: digits(1, 2 ** 31 - 1).optional(),
});
const RunFilter = z.object({
  status: z.enum(RUN_STATUSES).optional(),
  workflow: z.string().optional(),
  queue: z.string().optional(),
  key: z.string().optional(),
  after: z.string().optional(),
});
