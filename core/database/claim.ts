import { wrongType } from "../lock/checks.ts";
import { checkFence, type Fence, FencedOutError, fenceOwner, formatFence } from "../lock/fence.ts";
import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  exact,
  list,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "./sql.ts";

/**
 * Raises the resource's claim to this fence. Changes nothing if the claim is higher, or equal and of another owner.
 *
 * The claim comes before the transaction's first read of the resource. With a claim before the write only, a late
 * holder could write after its successor's read, and the successor would overwrite that write. The claim's row stays
 * locked until the transaction ends, so a late holder waits here and is then refused.
 */
export function claim(dialect: Dialect, fence: Fence): Sql {
  const { resource, generation, token } = fence;
  const owner = ownerOf(fence);
  const claimed = {
    generation: sql`lockstep_claim.generation`,
    token: sql`lockstep_claim.token`,
    owner: sql`lockstep_claim.owner`,
  };
  const isLower = sql`
    ${claimed.generation} < ${generation}
      OR (${claimed.generation} = ${generation} AND ${claimed.token} < ${token})`;
  const isUnnamed = sql`
    ${claimed.generation} = ${generation} AND ${claimed.token} = ${token} AND ${claimed.owner} IS NULL`;
  // The owner comes first: its condition reads the columns that follow, and some databases assign from left to right.
  return sql`
    INSERT INTO lockstep_claim (resource, generation, token, owner)
    VALUES (${resource}, ${generation}, ${token}, ${owner})
    ${dialect.onConflict("resource")}
      owner = CASE WHEN ${isLower} OR (${isUnnamed}) THEN ${owner} ELSE ${claimed.owner} END,
      token = CASE WHEN ${isLower} THEN ${token} ELSE ${claimed.token} END,
      generation = CASE WHEN ${claimed.generation} < ${generation} THEN ${generation}
        ELSE ${claimed.generation} END`;
}

/** Raises the claim as `claim` does, and reads it as `readClaim` does, in the last result. */
export function claimAndRead(dialect: Dialect, fence: Fence): readonly Sql[] {
  if (!dialect.hasFunctions) return [claim(dialect, fence), readClaim(fence)];
  return [sql`SELECT * FROM lockstep_claim_fence(${fenceArguments(fence)})`];
}

/** The arguments of the database's functions for a fence: resource, generation, token and owner. NULL without a fence. */
export function fenceArguments(fence: Fence | undefined): Sql {
  if (fence === undefined) return list([null, null, null, null]);
  return list([fence.resource, fence.generation, fence.token, ownerOf(fence)]);
}

function ownerOf(fence: Fence): string {
  return fenceOwner(fence) ?? "";
}

/**
 * A condition for statements after `claim`, in the same transaction or a later one. True if this fence holds the claim,
 * or without a fence. Nobody raises the claim before the transaction ends.
 */
export function isClaimed(dialect: Dialect, fence: Fence | undefined): Sql {
  if (fence === undefined) return sql`1 = 1`;
  const { resource, generation, token } = fence;
  return sql`
    EXISTS (
      SELECT 1 FROM lockstep_claim
      WHERE resource = ${resource} AND generation = ${generation} AND token = ${token}
        AND (owner = ${ownerOf(fence)} OR owner IS NULL)
      ${dialect.forShare})`;
}

export function readClaim({ resource }: Fence): Sql {
  return sql`SELECT generation, ${exact(sql`token`)} AS token, owner FROM lockstep_claim WHERE resource = ${resource}`;
}

/** Throws a FencedOutError unless the row that `readClaim` found is the claim of this fence. */
export function checkClaim(fence: Fence, [row]: readonly Row[]): void {
  if (row === undefined) throw new FencedOutError(fence, "none");
  const generation = asNumber(row.generation);
  const token = asBigInt(row.token);
  const isEqual = generation === fence.generation && token === fence.token;
  if (isEqual && (row.owner === null || asText(row.owner) === ownerOf(fence))) return;
  throw new FencedOutError(fence, formatFence(generation, token), { byEqual: isEqual });
}

/**
 * Claims a resource for the holder of this fence. Call it before anything else in the transaction.
 *
 * Until the transaction ends, earlier holders wait or are refused with a FencedOutError, and rows read here do not
 * change under this holder. Rejects with a FencedOutError for a late holder, and with a FenceInvalidError for a fence
 * that no lock has issued.
 */
export async function claimFence(database: Database, tx: Transaction, fence: Fence): Promise<void> {
  if (!database?.dialect) throw wrongType("database", "the database of a store", database);
  if (!tx?.batch) throw wrongType("tx", "a transaction of the database", tx);
  checkFence(fence, fence?.resource);
  const results = await tx.batch(claimAndRead(database.dialect, fence));
  checkClaim(fence, results.at(-1)?.rows ?? []);
}
