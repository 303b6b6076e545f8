/** Begins the keys of records from before a run was reopened. */
const PREFIX = "~old/";

/** Returns the start of the keys of the records that a reopening at this epoch supersedes. */
export function supersededPrefix(epoch: bigint): string {
  return `${PREFIX}${epoch}/`;
}

/** Returns the key that a superseded record had, or undefined for another record. */
export function originalKey(key: string): string | undefined {
  return key.startsWith(PREFIX) ? key.replace(/^~old\/\d+\//, "") : undefined;
}
