import { FencedOutError } from "../lock/errors.ts";
import { checkFence, type Fence, fenceOwner, formatFence } from "../lock/fence.ts";
import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "./sql.ts";

/**
 * Raises the resource's claim to this fence, unless a later holder has raised it further, or another one came with an
 * equal fence first.
 *
 * It belongs before the first read of the resource, not only before the write: a holder that is late would
 * otherwise still write between the read and the write of its successor. Its row stays locked until the
 * transaction ends, so a late holder waits here and then finds itself late.
 */
export function claim(dialect: Dialect, fence: Fence): Sql {
  const { resource, generation, token } = fence;
  const owner = ownerOf(fence);
  const isLower = sql`generation < ${generation} OR (generation = ${generation} AND token < ${token})`;
  const isUnnamed = sql`generation = ${generation} AND token = ${token} AND owner IS NULL`;
  // The owner first: MySQL assigns from left to right, and it depends on what the others were.
  return sql`
    INSERT INTO lockstep_claim (resource, generation, token, owner)
    VALUES (${resource}, ${generation}, ${token}, ${owner})
    ${dialect.onConflict("resource")}
      owner = CASE WHEN ${isLower} OR (${isUnnamed}) THEN ${owner} ELSE owner END,
      token = CASE WHEN ${isLower} THEN ${token} ELSE token END,
      generation = CASE WHEN generation < ${generation} THEN ${generation} ELSE generation END`;
}

function ownerOf(fence: Fence): string {
  return fenceOwner(fence) ?? "";
}

/**
 * A condition for statements after `claim`, in the same transaction or a later one: true unless the fence is
 * late. It keeps the claim from being raised until the transaction ends. Without a fence it is always true.
 */
export function isClaimed(dialect: Dialect, fence: Fence | undefined): Sql {
  if (fence === undefined) return sql`1 = 1`;
  const { resource, generation, token } = fence;
  return sql`
    EXISTS (
      SELECT 1 FROM lockstep_claim
      WHERE resource = ${resource} AND generation = ${generation} AND token = ${token}
        AND (owner = ${ownerOf(fence)} OR owner IS NULL)
      ${dialect.shared})`;
}

export function readClaim({ resource }: Fence): Sql {
  return sql`SELECT generation, token, owner FROM lockstep_claim WHERE resource = ${resource}`;
}

/** Throws a FencedOutError unless the answer to `readClaim` shows this very fence. */
export function checkClaim(fence: Fence, [row]: readonly Row[]): void {
  if (row === undefined) throw new FencedOutError(fence, "none");
  const generation = asNumber(row.generation);
  const token = asBigInt(row.token);
  const isEqual = generation === fence.generation && token === fence.token;
  if (isEqual && (row.owner === null || asText(row.owner) === ownerOf(fence))) return;
  throw new FencedOutError(fence, formatFence(generation, token), { byEqual: isEqual });
}

/**
 * Claims a resource for the holder of this fence, as the first thing that a transaction does.
 *
 * From then on until the transaction ends, the holder's predecessors wait or are refused with a
 * FencedOutError, and what is read here does not change under it. Rejects with a FencedOutError when the
 * holder itself is late, and with a FenceInvalidError for a fence that no lock has issued.
 */
export async function claimFence(
  { dialect }: Database,
  tx: Transaction,
  fence: Fence,
): Promise<void> {
  checkFence(fence, fence?.resource);
  const [, answer] = await tx.packet([claim(dialect, fence), readClaim(fence)]);
  checkClaim(fence, answer?.rows ?? []);
}
