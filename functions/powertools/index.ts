/** The idempotency utility of Powertools for AWS Lambda, with its records in a journal of Lockstep. */
export { JournalPersistenceLayer } from "./journal-persistence-layer.ts";
