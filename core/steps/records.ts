import type { NewRecord, RecordKind } from "../journal/records.ts";
import { encode } from "./codec.ts";
import type { WorkflowCommand } from "./history.ts";
import { attemptKey } from "./step-keys.ts";

/** Returns the final record of a command that has succeeded. */
export function okRecord(
  { key, kind, argsHash }: Omit<WorkflowCommand, "kind"> & { readonly kind: RecordKind },
  value: unknown,
) {
  const base = { key, kind, argsHash, outcome: "ok", attempt: 1 } as const;
  return { ...base, value: encode(value) } satisfies NewRecord;
}

/** Returns the record of the start of a wait, or of a part of one. A span counts from the time of the record. */
export function startedRecord(command: WorkflowCommand, value: unknown, number = 1) {
  const key = attemptKey(command.key, "started", number);
  const record = okRecord({ ...command, key }, value);
  return { ...record, outcome: "started", attempt: number } satisfies NewRecord;
}
