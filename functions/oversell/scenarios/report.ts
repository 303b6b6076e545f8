/** The result of one way to guard the stock. */
export interface VariantReport {
  readonly name: string;

  /** Whether the variant claims that no unit is oversold. */
  readonly claimsSafe: boolean;

  /** Clients that considered themselves the holder at the same time. */
  readonly holders: number;

  /** Units sold, as the shop recorded them. */
  readonly sold: number;

  /** Units sold beyond the stock. */
  readonly oversold: number;

  /** Sales refused because their fence was late. */
  readonly refused: number;

  /** The explanation of the result. */
  readonly why: string;
}

export interface ScenarioReport {
  readonly scenario: string;

  /** The events of the scenario. */
  readonly story: string;

  /** The store of the stock. */
  readonly resource: string;
  readonly stock: number;
  readonly variants: readonly VariantReport[];
}

/** Whether a variant claims to be safe but is not. */
export function isUnsafe({ claimsSafe, oversold }: VariantReport): boolean {
  return claimsSafe && oversold > 0;
}
