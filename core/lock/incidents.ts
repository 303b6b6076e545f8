import type { Millis } from "./time.ts";

/** The number of slots: a store keeps so many incidents, and no more. */
export const INCIDENT_SLOTS = 20;

/** How long an incident is shown. */
export const INCIDENT_LIFE: Millis = 600_000;

/** The numbered places in a store that have one text each: incidents of its clients, for humans. */
export interface IncidentSlots {
  /** Resolves to the text of each slot; undefined for an empty one. */
  read(): Promise<readonly (string | undefined)[]>;

  /** Replaces the text of a slot. Resolves to false when another client has just done that. */
  write(slot: number, text: string, signal: AbortSignal): Promise<boolean>;
}

/** The slots as a client has them. */
export interface Incidents extends Pick<IncidentSlots, "read"> {
  /** The label of the client. */
  readonly process: string;

  /** Reads the slots, and replaces the text of the chosen one. The client's `close` waits for it. Resolves as `write` does. */
  replace(
    choose: (texts: readonly (string | undefined)[]) => number,
    text: string,
    signal: AbortSignal,
  ): Promise<boolean>;
}
