/** What the holders of one lock did to the stock, under one way to guard it. */
export interface VariantReport {
  readonly name: string;

  /** Whether this way claims that nothing is ever oversold. */
  readonly claimsSafe: boolean;

  /** How many believed to hold the lock at the same time. */
  readonly holders: number;

  /** Units sold, by the shop's books. */
  readonly sold: number;

  /** Units sold that were never there. */
  readonly oversold: number;

  /** Sales that were refused, as their holder was late. */
  readonly refused: number;

  /** What happened, in one sentence. */
  readonly why: string;
}

export interface ScenarioReport {
  readonly scenario: string;

  /** What the lock's servers go through. */
  readonly story: string;

  /** Where the stock is kept. */
  readonly resource: string;
  readonly stock: number;
  readonly variants: readonly VariantReport[];
}

/** A variant that claims to be safe, and is not. */
export function isUnsafe({ claimsSafe, oversold }: VariantReport): boolean {
  return claimsSafe && oversold > 0;
}
