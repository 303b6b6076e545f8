import { checkClaim, claim, readClaim } from "../../../database/claim.ts";
import {
  asNumber,
  asText,
  type Database,
  type Sql,
  type SqlResult,
} from "../../../database/sql.ts";
import {
  type DecrementResult,
  type StockOutcome,
  unknownSku,
} from "../../../inventory/inventory.ts";
import {
  describeBatch,
  type Operation,
  type OperationBatch,
  payloadHash,
  sameBytes,
} from "../../../inventory/operation.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import {
  applyStatements,
  readLedger,
  readStock,
  releaseExpired,
  soldOutStatements,
} from "./statements.ts";

/** Applies or refuses each decrement, all in one batch. For databases whose transactions may conflict. */
export function applyInOneBatch(
  database: Database,
  batch: OperationBatch,
  signal: AbortSignal | undefined,
): Promise<readonly DecrementResult[]> {
  const { sku, fence, operations } = batch;
  const { dialect, address } = database;
  const first = [
    ...(fence ? [claim(dialect, fence), readClaim(fence)] : []),
    ...releaseExpired(dialect, sku),
  ];
  return retryUntilKnown(address, `${describeBatch(batch)} was done`, signal, async (limit) => {
    const each = operations.map((operation): readonly Sql[] => {
      const tries = [applyStatements(dialect, operation), soldOutStatements(dialect, operation)];
      return [...tries.flatMap(({ change, record }) => [change, record]), readLedger(operation)];
    });
    const results = await database.batch([...first, ...each.flat(), readStock(sku)], limit);
    const [stock] = results.at(-1)?.rows ?? [];
    const onHand = asNumber(stock?.on_hand ?? 0);
    const own = results.slice(first.length);
    const answers = operations.map((operation, i) =>
      toAnswer(operation, own.splice(0, each[i]?.length), onHand),
    );
    // Without an entry, the fence is late or the sku unknown. Recorded operations keep their results, whatever the fence.
    if (fence && answers.includes(undefined)) checkClaim(fence, results[1]?.rows ?? []);
    if (!stock) throw unknownSku(sku);
    return answers as readonly DecrementResult[];
  });
}

/** The answer from the results of the operation's statements. Undefined without an entry in the ledger. */
function toAnswer(
  operation: Operation,
  results: readonly SqlResult[],
  onHand: number,
): DecrementResult | undefined {
  const { operationId } = operation;
  const changes = results.slice(0, -1);
  const [entry] = results.at(-1)?.rows ?? [];
  if (entry === undefined) return undefined;
  if (!sameBytes(entry.payload_hash as Uint8Array, payloadHash(operation))) {
    return { operationId, outcome: "conflict", remaining: onHand, replayed: false };
  }
  return {
    operationId,
    outcome: asText(entry.outcome) as StockOutcome,
    remaining: asNumber(entry.on_hand),
    replayed: changes.every(({ affected }) => affected === 0),
  };
}
