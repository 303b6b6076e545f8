import type { Millis } from "./time.ts";

/** A lost lock, or a write that a resource has refused, as a process has left it in its store: for humans, and shortened. */
export interface IncidentRecord {
  /** By the clock of the process. */
  readonly at: Date;

  /** The label of the process's client. */
  readonly process: string;
  readonly kind: "lost" | "refused";

  /** How the lock was lost, or the message of the error. */
  readonly why: string;
  readonly lock?: string | undefined;
  readonly fence?: string | undefined;
  readonly operationId?: string | undefined;
  readonly run?: string | undefined;
}

export type NewIncident = Omit<IncidentRecord, "at" | "process">;

/** The incidents that the clients of a store have left in it: about the newest ones, for ten minutes. */
export interface Incidents {
  /** Leaves an incident. Never rejects: what the store does not take is lost, and so are all but the first few of many at once. */
  leave(incident: NewIncident): Promise<void>;

  /** Reads the incidents, the newest first. */
  read(): Promise<readonly IncidentRecord[]>;
}

/** The number of slots: a store keeps so many incidents, and no more. */
export const INCIDENT_SLOTS = 20;

/** How long an incident is shown. */
export const INCIDENT_LIFE: Millis = 600_000;

/** The numbered places in a store that have one text each. */
export interface IncidentSlots {
  /** Resolves to the text of each slot; undefined for an empty one. */
  read(): Promise<readonly (string | undefined)[]>;

  /** Replaces the text of a slot. Resolves to false when another client has just done that. */
  write(slot: number, text: string, signal: AbortSignal): Promise<boolean>;
}
