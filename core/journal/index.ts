/** What runs have done, for whoever goes on with them. */
export { fromPayload, toPayload } from "./ending.ts";
export type {
  Claim,
  Claimed,
  DueQuery,
  Ended,
  Ending,
  EndStatus,
  Journal,
  JournalErrorCode,
  Missing,
  NewRecord,
  NewSignal,
  ParentRun,
  Parking,
  ParkReason,
  Possession,
  RecordKind,
  RecordOutcome,
  Renewed,
  RunDetails,
  RunInfo,
  RunKey,
  RunQuery,
  RunStatus,
  Signal,
  StepRecord,
  Take,
  TransactedStep,
  WorkflowKey,
} from "./journal.ts";
export { LONGEST_VALUE, StaleRunError } from "./journal.ts";
export { memoryJournal } from "./memory.ts";
export { sqlJournal } from "./sql.ts";
