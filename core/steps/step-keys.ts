import { keyPart } from "../journal/key-part.ts";
import type { StepRecord } from "../journal/records.ts";
import { checkFunction, checkOneOf, checkText, wrongType } from "../lock/checks.ts";
import { quote } from "../lock/errors.ts";

/** Returns the key of the record that ends the copied ones in a fork. */
export function forkKey(number: number, origin: string): string {
  return `~fork/${number}/${origin}`;
}

/** Returns the run in a key that `forkKey` made. */
export function originIn(key: string): string {
  return key.replace(/^~fork\/\d+\//, "");
}

export function isOfStep({ kind }: Pick<StepRecord, "kind">): boolean {
  return kind !== "undo" && kind !== "failure" && kind !== "fork" && kind !== "refusal";
}

/** Returns the key of the step that an undo undoes, and other keys unchanged. */
export function undoneKey(key: string): string {
  return key.replace(/^~undo\//, "");
}

export function isFinal({ outcome }: Pick<StepRecord, "outcome">): boolean {
  return outcome === "ok" || outcome === "failed";
}

export function attemptKey(key: string, outcome: "retry" | "started", attempt: number): string {
  return `${key}@${attempt}${outcome === "started" ? " started" : ""}`;
}

/** Returns the key of the step that a record belongs to. */
export function stepKeyOf(record: Pick<StepRecord, "key" | "outcome">): string {
  return isFinal(record) ? record.key : record.key.replace(/@\d+(?: started)?$/, "");
}

/** Returns the name of a step for humans. */
export function stepName(key: string): string {
  return key.replace(/^~(signal\/)?/, "");
}

/** Throws unless the text has 1 to `most` bytes, also as a part of a key. */
export function checkKeyPart(what: string, text: unknown, most: number): asserts text is string {
  checkText(what, text, most);
  checkText(`${what}, with "/" and "%" escaped,`, keyPart(text), most);
}

/** Throws for a name that could be the key of another record. */
export function checkStepName(what: string, name: unknown): asserts name is string {
  checkName(what, name, 200);
}

/** Throws for a name that could be one of the engine's own signals, or whose wait could have the key of another record. */
export function checkSignalName(name: unknown): asserts name is string {
  checkName("signal", name, 255);
}

function checkName(what: string, name: unknown, most: number): asserts name is string {
  checkText(what, name, most);
  if (name.startsWith("~") || /[#@]\d+(?: started)?$/.test(name)) {
    throw new RangeError(
      `${what} ${quote(name)} must not begin with "~", or end in "#" or "@" and a number`,
    );
  }
}

/** Throws a TypeError unless the items are a list. */
export function checkItems(call: string, items: unknown): void {
  if (typeof items !== "object" || items === null || !(Symbol.iterator in items)) {
    throw wrongType(`${call}: its items`, "a list", items);
  }
}

/** Throws a TypeError that names the call, such as "step.map charge". */
export function checkItemOptions(call: string, { keyOf, onError }: ItemOptions): void {
  checkFunction(`${call}: keyOf`, keyOf);
  checkOneOf(`${call}: onError`, onError, ["fail-fast", "collect"]);
}

/** Throws unless the keys of the items of a call are distinct names. */
export function checkItemKeys(name: string, keys: readonly string[]): void {
  const seen = new Set<string>();
  for (const key of keys) {
    checkStepName(`keyOf of ${name}`, key);
    if (seen.has(key)) {
      throw new RangeError(`two items of ${name} have the key ${key}; keyOf must tell them apart`);
    }
    seen.add(key);
  }
}

interface ItemOptions {
  readonly keyOf: unknown;
  readonly onError: unknown;
}
