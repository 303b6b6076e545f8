import { asBigInt, asNumber, asText, type Row } from "../../core/database/sql.ts";

/** An entry of the product's ledger. */
export interface Entry {
  /** The operation id. Empty for an expired reservation. */
  readonly id: string;
  readonly kind: string;
  readonly outcome: string;
  readonly quantity: number;
  readonly onHand: number;
  readonly reservation: string;
  readonly token: bigint | undefined;

  /** In microseconds since 1970. */
  readonly at: number;
}

export function toEntry(row: Row): Entry {
  const textOf = (value: unknown) => (value == null ? "" : asText(value));
  return {
    id: textOf(row.operation_id),
    kind: asText(row.kind),
    outcome: asText(row.outcome),
    quantity: asNumber(row.quantity),
    onHand: asNumber(row.on_hand),
    reservation: textOf(row.reservation),
    token: row.token == null ? undefined : asBigInt(row.token),
    at: asNumber(row.at),
  };
}

interface Reserved {
  readonly quantity: number;

  /** In microseconds since 1970. */
  readonly expiresAt: number;
}

/** The stock of one sku as it should be after each entry of the ledger. Shares no code with the product. */
export class StockModel {
  onHand: number;
  sold = 0;
  readonly #reserved = new Map<string, Reserved>();

  /** Whether times can be compared: the store's clock was not changed. */
  readonly #isClockSteady: boolean;

  constructor(onHand: number, isClockSteady: boolean) {
    this.onHand = onHand;
    this.#isClockSteady = isClockSteady;
  }

  get reserved(): number {
    return [...this.#reserved.values()].reduce((sum, { quantity }) => sum + quantity, 0);
  }

  /** Applies the entry. Returns what is wrong with it. `expiresIn`, in milliseconds, is what its caller asked for. */
  apply(entry: Entry, expiresIn: number): string | undefined {
    const problem = this.#apply(entry, expiresIn);
    // Reservations expire together, and each of their entries has the stock after all of them.
    if (problem || entry.kind === "expire" || entry.onHand === this.onHand) return problem;
    return `${entry.onHand} were left, not ${this.onHand}`;
  }

  #apply(entry: Entry, expiresIn: number): string | undefined {
    const { kind, quantity } = entry;
    switch (kind) {
      case "set":
        this.onHand = quantity;
        return undefined;
      case "restock":
        this.onHand += quantity;
        return undefined;
      case "decrement":
      case "reserve":
        return this.#take(entry, expiresIn);
      case "expire":
        return this.#expire(entry);
      default:
        return this.#close(entry);
    }
  }

  #take({ id, kind, outcome, quantity, at }: Entry, expiresIn: number): string | undefined {
    const applied = outcome === "applied";
    if (applied !== quantity <= this.onHand) return `${this.onHand} were on hand`;
    if (!applied) {
      const expired = [...this.#reserved.values()].some((one) => this.#isOver(one, at));
      return expired ? "a reservation had expired" : undefined;
    }
    this.onHand -= quantity;
    if (kind === "decrement") this.sold += quantity;
    else this.#reserved.set(id, { quantity, expiresAt: at + Math.round(expiresIn * 1_000) });
    return undefined;
  }

  #expire({ reservation, quantity, at }: Entry): string | undefined {
    const closed = this.#remove(reservation);
    this.onHand += quantity;
    if (!closed) return "it was not open";
    return this.#isClockSteady && closed.expiresAt > at ? "it had time left" : undefined;
  }

  #close({ kind, outcome, reservation, quantity, at }: Entry): string | undefined {
    const open = this.#reserved.get(reservation);
    if (outcome !== "applied") {
      const mayClose = open && (kind === "cancel" || (this.#isClockSteady && open.expiresAt > at));
      return mayClose ? "it was open" : undefined;
    }
    this.#remove(reservation);
    if (kind === "confirm") this.sold += quantity;
    else this.onHand += quantity;
    if (!open) return "it was not open";
    return kind === "confirm" && this.#isOver(open, at) ? "it came too late" : undefined;
  }

  #remove(reservation: string): Reserved | undefined {
    const open = this.#reserved.get(reservation);
    this.#reserved.delete(reservation);
    return open;
  }

  #isOver({ expiresAt }: Reserved, at: number): boolean {
    return this.#isClockSteady && expiresAt <= at;
  }
}
