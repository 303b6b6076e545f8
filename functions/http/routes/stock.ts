import * as z from "zod";
import {
  type Inventory,
  type StockChange,
  type StockResult,
  unknownSku,
} from "../../../core/inventory/inventory.ts";
import { race } from "../../../core/lock/abort.ts";
import { type Fence, openFence } from "../../../core/lock/fence.ts";
import type { AppOptions } from "../options.ts";
import { Problem } from "../problem.ts";
import type { RequestHead } from "../request.ts";
import { type Route, type RouteRequest, type RouteResponse, route } from "../route.ts";
import {
  Change,
  digits,
  History,
  NoBody,
  QuantityBody,
  ReserveBody,
  SetBody,
  Stock,
  text,
} from "../schemas.ts";

const Sku = z.object({ sku: text("sku") });
const Reservation = Sku.extend({ reservation: text("reservation") });

export function stockRoutes({ inventory, secret }: AppOptions): readonly Route[] {
  if (!inventory) return [];
  const changeRoute = changeRouteWith(secret);
  return [
    ...readRoutes(inventory),
    changeRoute({
      operation: "setStock",
      method: "put",
      path: "/stock/{sku}",
      summary: "Set the units on hand",
      params: Sku,
      body: SetBody,
      apply: (change, { body }) => inventory.set({ ...change, ...body }),
    }),
    changeRoute({
      operation: "restock",
      method: "post",
      path: "/stock/{sku}/restock",
      summary: "Add units",
      params: Sku,
      body: QuantityBody,
      apply: (change, { body }) => inventory.restock({ ...change, ...body }),
    }),
    changeRoute({
      operation: "decrementStock",
      method: "post",
      path: "/stock/{sku}/decrement",
      summary: "Sell units if enough are on hand",
      params: Sku,
      body: QuantityBody,
      apply: (change, { body }) => inventory.decrement({ ...change, ...body }),
    }),
    changeRoute({
      operation: "reserveStock",
      method: "post",
      path: "/stock/{sku}/reservations",
      summary: "Reserve units for a time",
      description: "The Idempotency-Key is the reservation's name.",
      params: Sku,
      body: ReserveBody,
      apply: (change, { body }) => inventory.reserve({ ...change, ...body }),
    }),
    changeRoute({
      operation: "confirmReservation",
      method: "post",
      path: "/stock/{sku}/reservations/{reservation}/confirm",
      summary: "Sell reserved units",
      params: Reservation,
      body: NoBody,
      apply: (change, { params }) => inventory.confirm({ ...change, ...params }),
    }),
    changeRoute({
      operation: "cancelReservation",
      method: "post",
      path: "/stock/{sku}/reservations/{reservation}/cancel",
      summary: "Return reserved units to the units on hand",
      params: Reservation,
      body: NoBody,
      apply: (change, { params }) => inventory.cancel({ ...change, ...params }),
    }),
  ];
}

function readRoutes(inventory: Inventory): readonly Route[] {
  return [
    route({
      operation: "readStock",
      method: "get",
      path: "/stock/{sku}",
      access: "read",
      tag: "stock",
      summary: "Read the stock of a sku",
      params: Sku,
      responses: { 200: { description: "the stock", schema: Stock } },
      problems: [404],
      async handle({ params: { sku }, signal, log }) {
        log({ sku });
        const stock = await race(inventory.get(sku), signal);
        if (!stock) throw unknownSku(sku);
        return { status: 200, body: stock };
      },
    }),
    route({
      operation: "readHistory",
      method: "get",
      path: "/stock/{sku}/history",
      access: "read",
      tag: "stock",
      summary: "Read the changes of a sku",
      params: Sku,
      query: Page,
      responses: { 200: { description: "entries of the ledger", schema: History } },
      async handle({ params: { sku }, query: { limit, before }, signal, log }) {
        log({ sku });
        const page = { limit, ...(before !== undefined && { before }) };
        const entries = await race(inventory.history(sku, page), signal);
        const last = entries.length === limit ? (entries.at(-1)?.seq ?? 1) : 1;
        return { status: 200, body: { sku, entries, ...(last > 1 && { before: last }) } };
      },
    }),
  ];
}

const Page = z.strictObject({
  limit: digits(1, 1_000)
    .default(100)
    .meta({ override: { default: 100 } }),
  before: digits(0, Number.MAX_SAFE_INTEGER).optional(),
});

type WithSku = z.ZodObject<{ sku: z.ZodString }>;

type ChangeCall<P extends z.ZodType, B extends z.ZodType> = RouteRequest<
  z.output<P>,
  unknown,
  z.output<B>
>;

interface ChangeRoute<P extends WithSku, B extends z.ZodType>
  extends Pick<Route, "operation" | "method" | "path" | "summary" | "description"> {
  readonly params: P;
  readonly body: B;
  apply(change: StockChange, call: ChangeCall<P, B>): Promise<StockResult>;
}

/** Returns a function that defines a route for a change of stock. */
function changeRouteWith(secret: string | undefined) {
  return <P extends WithSku, B extends z.ZodType>({ apply, ...rest }: ChangeRoute<P, B>): Route =>
    route({
      ...rest,
      access: "write",
      tag: "stock",
      keyed: true,
      ...(secret !== undefined && { headers: FenceHeader }),
      responses: {
        200: { description: "applied by this request or an earlier one", schema: Change },
      },
      problems: [404, 409, 422],
      async handle(call) {
        const { key, headers, signal, log } = call;
        const { sku } = call.params as { readonly sku: string };
        log({ sku, operationId: key });
        const fence = await fenceOf(headers, secret);
        const answer = await apply({ sku, operationId: key, signal, fence }, call);
        log({ replayed: answer.replayed });
        return toResponse(sku, key, answer);
      },
    });
}

const FenceHeader = z.object({
  "Lockstep-Fence": z.string().optional().meta({
    description: "the sealed fence of a lock on sku/SKU, with which late holders are refused",
  }),
});

async function fenceOf(
  headers: RequestHead["headers"],
  secret: string | undefined,
): Promise<Fence | undefined> {
  const sealed = headers.get("lockstep-fence");
  if (sealed === null) return undefined;
  if (secret !== undefined) return openFence(sealed, secret);
  // Ignoring the fence would let a late holder write.
  throw new Problem(
    400,
    "FENCE_INVALID",
    "the server cannot open sealed fences: its option `secret` is not set",
  );
}

function toResponse(sku: string, operationId: string, answer: StockResult): RouteResponse {
  const { outcome, remaining, replayed } = answer;
  const headers: Record<string, string> = replayed ? { "Idempotent-Replayed": "true" } : {};
  const more = { sku, operationId, remaining };
  if (outcome === "applied") return { status: 200, headers, body: { ...more, outcome } };
  const [code, detail] = REFUSALS[outcome];
  throw new Problem(409, code, detail, { more, headers });
}

const REFUSALS = {
  "sold-out": ["SOLD_OUT", "fewer units are on hand than requested"],
  closed: ["RESERVATION_CLOSED", "the reservation is no longer open"],
} as const;
