import type { Transaction } from "../database/sql.ts";
import type { Inventory, StockOperations } from "../inventory/inventory.ts";

/** Stock beside a journal, in a SQL database or DynamoDB. */
export interface TransactionalInventory extends Inventory {
  /**
   * Makes the changes a part of the caller's transaction: they commit or roll back with it. Replays return the first
   * result as usual. The `signal` of a change is ignored; the transaction has its own.
   *
   * A change claims its fence before it reads anything. In SQL the transaction keeps the claim until its end, and OPERATION_CONFLICT
   * may say that another transaction has just used the operation id for another sku; like every failure of a statement it ends
   * the transaction. On DynamoDB `tx` is that of `step.tx`, whose body is repeated when others have changed the stock.
   */
  within(tx: Pick<Transaction, "batch">): StockOperations;
}
