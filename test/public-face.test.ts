import { expect, test } from "vitest";
import { readPublicFace } from "./support/public-face.ts";

const face = readPublicFace();

const declarations = new Map(
  [...face.entries.values()].flatMap((names) =>
    [...names].map(([name, id]) => [id, name] as const),
  ),
);

/** Errors inside the package, each of which reaches users as another error. */
const INTERNAL_ERRORS = [
  "BusyError",
  "CallFailure",
  "CommandFailure",
  "LeaseExistsError",
  // A TerminalError of the code MISUSE for users.
  "MisuseError",
  "MultiFailure",
  "NotInstalledError",
  "Problem",
  "RequestFailure",
  "RolledBackError",
  // Of the nodes of ZooKeeper's queues, which are no part of the entry.
  "BadVersionError",
  "NoNodeError",
  "NodeExistsError",
  // A SessionExpiredError for users.
  "NotQueuedError",
  // A StoreUnavailableError for users.
  "TornReadError",
];

test("the package has at most 200 public names", () => {
  expect(declarations.size).toBeGreaterThan(100);
  expect(declarations.size).toBeLessThanOrEqual(200);
});

test("a public name means the same thing in every entry", () => {
  const meanings = Map.groupBy(declarations.keys(), (id) => declarations.get(id));
  expect([...meanings].filter(([, ids]) => ids.length > 1)).toEqual([]);
  for (const [id, name] of declarations) expect(id.split("#")[1]).toBe(name);
});

test("an entry exports every object type that users get from the package", () => {
  expect(face.given.length).toBeGreaterThan(50);
  expect(face.given.filter(({ type }) => !declarations.has(type))).toEqual([]);
});

test("an entry exports every error that users get", () => {
  expect(face.errors.length).toBeGreaterThan(30);
  const unknown = face.errors.filter((id) => !declarations.has(id));
  expect(unknown.map((id) => id.split("#")[1]).toSorted()).toEqual(INTERNAL_ERRORS.toSorted());
});

test("the declarations of the entries compile", () => {
  expect(face.problems).toEqual([]);
});
