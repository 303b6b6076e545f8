import * as z from "zod";
import {
  type Inventory,
  type Answer as StockAnswer,
  type Change as StockChange,
  UnknownSkuError,
} from "../../../core/inventory/inventory.ts";
import { race } from "../../../core/lock/abort.ts";
import { type Fence, openFence } from "../../../core/lock/fence.ts";
import type { AppOptions } from "../options.ts";
import { Problem } from "../problem.ts";
import { type Answer, type Call, type Route, route } from "../route.ts";
import { Change, History, QuantityBody, ReserveBody, SetBody, Stock, text } from "../schemas.ts";

const Sku = z.object({ sku: text("sku") });
const Reservation = Sku.extend({ reservation: text("reservation") });

export function stockRoutes({ inventory, secret }: AppOptions): readonly Route[] {
  if (!inventory) return [];
  const change = changing(secret);
  return [
    ...readRoutes(inventory),
    change({
      operation: "setStock",
      method: "put",
      path: "/stock/{sku}",
      summary: "Make the units on hand exactly so many",
      params: Sku,
      body: SetBody,
      apply: (change, { body }) => inventory.set({ ...change, ...body }),
    }),
    change({
      operation: "restock",
      method: "post",
      path: "/stock/{sku}/restock",
      summary: "Units come in",
      params: Sku,
      body: QuantityBody,
      apply: (change, { body }) => inventory.restock({ ...change, ...body }),
    }),
    change({
      operation: "decrementStock",
      method: "post",
      path: "/stock/{sku}/decrement",
      summary: "Sell, if there are enough",
      params: Sku,
      body: QuantityBody,
      apply: (change, { body }) => inventory.decrement({ ...change, ...body }),
    }),
    change({
      operation: "reserveStock",
      method: "post",
      path: "/stock/{sku}/reservations",
      summary: "Set units aside for a while",
      description: "The Idempotency-Key is the reservation's name.",
      params: Sku,
      body: ReserveBody,
      apply: (change, { body }) => inventory.reserve({ ...change, ...body }),
    }),
    change({
      operation: "confirmReservation",
      method: "post",
      path: "/stock/{sku}/reservations/{reservation}/confirm",
      summary: "Sell what was set aside",
      params: Reservation,
      body: z.undefined(),
      apply: (change, { params }) => inventory.confirm({ ...change, ...params }),
    }),
    change({
      operation: "cancelReservation",
      method: "post",
      path: "/stock/{sku}/reservations/{reservation}/cancel",
      summary: "Put what was set aside back on hand",
      params: Reservation,
      body: z.undefined(),
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
      summary: "What there is of a sku",
      params: Sku,
      answers: { 200: { description: "the stock", schema: Stock } },
      problems: [404],
      async handle({ params: { sku }, signal, note }) {
        note({ sku });
        const stock = await race(inventory.get(sku), signal);
        if (!stock) throw new UnknownSkuError(sku);
        return { status: 200, body: stock };
      },
    }),
    route({
      operation: "readHistory",
      method: "get",
      path: "/stock/{sku}/history",
      access: "read",
      tag: "stock",
      summary: "What has happened to a sku",
      params: Sku,
      query: Page,
      answers: { 200: { description: "entries of the ledger", schema: History } },
      async handle({ params: { sku }, query: { limit, before }, signal, note }) {
        note({ sku });
        const page = { limit, ...(before !== undefined && { before }) };
        const entries = await race(inventory.history(sku, page), signal);
        const last = entries.length === limit ? entries.at(-1)?.seq : undefined;
        return { status: 200, body: { sku, entries, before: last } };
      },
    }),
  ];
}

const Page = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
  before: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
});

type WithSku = z.ZodObject<{ sku: z.ZodString }>;

type ChangeCall<P extends z.ZodType, B extends z.ZodType> = Call<z.output<P>, unknown, z.output<B>>;

interface Changing<P extends WithSku, B extends z.ZodType>
  extends Pick<Route, "operation" | "method" | "path" | "summary" | "description"> {
  readonly params: P;
  readonly body: B;
  apply(change: StockChange, call: ChangeCall<P, B>): Promise<StockAnswer>;
}

/** What all changes of stock have in common. */
function changing(secret: string | undefined) {
  return <P extends WithSku, B extends z.ZodType>({ apply, ...rest }: Changing<P, B>): Route =>
    route({
      ...rest,
      access: "write",
      tag: "stock",
      keyed: true,
      ...(secret !== undefined && { headers: FenceHeader }),
      answers: { 200: { description: "applied, now or before", schema: Change } },
      problems: [404, 409, 422],
      async handle(call) {
        const { key, request, signal, note } = call;
        const { sku } = call.params as { readonly sku: string };
        note({ sku, operationId: key });
        const fence = await fenceOf(request.headers, secret);
        const answer = await apply({ sku, operationId: key, signal, fence }, call);
        note({ replayed: answer.replayed });
        return toAnswer(sku, key, answer);
      },
    });
}

const FenceHeader = z.object({
  "Lockstep-Fence": z
    .string()
    .optional()
    .meta({ description: "the sealed fence of a lock on sku/SKU: a late holder is refused" }),
});

async function fenceOf(headers: Headers, secret: string | undefined): Promise<Fence | undefined> {
  const sealed = headers.get("lockstep-fence");
  if (sealed === null) return undefined;
  if (secret !== undefined) return openFence(sealed, secret);
  // To ignore it would let a late holder write.
  throw new Problem(400, "FENCE_INVALID", "this server has no secret to open sealed fences with");
}

function toAnswer(sku: string, operationId: string, answer: StockAnswer): Answer {
  const { outcome, remaining, replayed } = answer;
  const headers: Record<string, string> = replayed ? { "Idempotent-Replayed": "true" } : {};
  const more = { sku, operationId, remaining };
  if (outcome === "applied") return { status: 200, headers, body: { ...more, outcome } };
  const [code, detail] = REFUSALS[outcome];
  throw new Problem(409, code, detail, { more, headers });
}

const REFUSALS = {
  "sold-out": ["SOLD_OUT", "there are fewer on hand than asked for"],
  closed: ["RESERVATION_CLOSED", "the reservation is not open any more"],
} as const;
