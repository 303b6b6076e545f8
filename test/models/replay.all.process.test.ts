import { expect, test } from "vitest";
import { type CallEvent, replay } from "./replay.ts";

/** Makes a history of texts such as "a claim ok 1": client, operation, type, token, value. The value of a hold is its end. */
function historyOf(...lines: readonly string[]): readonly CallEvent[] {
  return eventsOf("cup", lines, ([token, value], operation) => ({
    ...(token && { token }),
    ...(value && { [operation === "hold" ? "until" : "value"]: Number(value) }),
  }));
}

/** Makes a history of stock of texts such as "a sale ok x 2 7": client, operation, type, operation id, units, units left. */
function stockOf(supplied: number, ...lines: readonly string[]): readonly CallEvent[] {
  const calls = eventsOf("cup", lines, ([id, units, remaining]) => ({
    ...(id && { id }),
    ...(id?.includes(":") && { reservation: id.slice(id.indexOf(":") + 1) }),
    ...(units && { units: Number(units) }),
    ...(remaining && { remaining: Number(remaining) }),
  }));
  const observer = { time: -1, client: "observer", type: "ok", name: "cup" } as const;
  return [{ ...observer, operation: "supply", value: supplied }, ...calls];
}

/** Makes a history of a run of texts such as "a record ok 1": client, operation, type, epoch. */
function runOf(...lines: readonly string[]): readonly CallEvent[] {
  return eventsOf("run 1", lines, ([token]) => (token ? { token } : {}));
}

function eventsOf(
  name: string,
  lines: readonly string[],
  detailsOf: (texts: readonly (string | undefined)[], operation: string) => Partial<CallEvent>,
): readonly CallEvent[] {
  return lines.map((line, time) => {
    const [client = "", operation = "", type = "", ...details] = line.split(" ");
    const [, ending = type, code] = /^(fail):(.+)$/.exec(type) ?? [];
    return {
      ...{ time, client, operation, name, type: ending as CallEvent["type"] },
      ...(code && { code }),
      ...detailsOf(details, operation),
    };
  });
}

const acquired = (client: string, token: number) => [
  `${client} acquire invoke`,
  `${client} acquire ok ${token}`,
];

test("a history with an overlap, a late holder and an unknown write is a path of the model", async () => {
  const history = historyOf(
    ...acquired("a", 1),
    "a claim invoke 1",
    "a claim ok 1",
    "a read invoke 1",
    "a read ok 1 0",
    "a hold ok 1",
    "a write invoke 1 1",
    ...acquired("b", 4),
    "b claim invoke 4",
    "a write unknown 1 1",
    "b claim ok 4",
    "b read invoke 4",
    "b read ok 4 1",
    "a claim invoke 1",
    "a claim fail:FENCED_OUT 1",
    "a release invoke 1",
    "a release fail:was-lost 1",
    "b write invoke 4 2",
    "b write ok 4 2",
    "b release invoke 4",
    "b release ok 4",
  );
  const twice = [history, structuredClone(history)];
  const models = {
    fence: { replayed: 44, recorded: 44 },
    validity: { replayed: 18, recorded: 18 },
  };
  expect(await replay(twice)).toEqual({ histories: 2, events: 44, models });
});

test.each([
  ["two holders with one token", [...acquired("a", 1), ...acquired("b", 1)], 3],
  ["a later holder with a lower token", [...acquired("a", 2), ...acquired("b", 1)], 1],
  [
    "a late claim that is accepted",
    [
      ...[...acquired("a", 1), ...acquired("b", 2), "b claim invoke 2", "b claim ok 2"],
      ...["a claim invoke 1", "a claim ok 1"],
    ],
    7,
  ],
  [
    "a holder that is refused without a later one",
    [...acquired("a", 1), "a claim invoke 1", "a claim fail:FENCED_OUT 1"],
    3,
  ],
  [
    "a late write that is accepted",
    [
      ...[
        ...acquired("a", 1),
        "a claim invoke 1",
        "a claim ok 1",
        "a read invoke 1",
        "a read ok 1 0",
      ],
      ...[...acquired("b", 2), "b claim invoke 2", "b claim ok 2"],
      ...["a write invoke 1 1", "a write ok 1 1"],
    ],
    11,
  ],
  [
    "a lost update",
    [
      ...[...acquired("a", 1), "a read invoke 1", "a read ok 1 0", ...acquired("b", 2)],
      ...["b read invoke 2", "b read ok 2 0", "a write invoke 1 1", "a write ok 1 1"],
      ...["b write invoke 2 1", "b write ok 2 1"],
    ],
    11,
  ],
  ["a value that nobody wrote", [...acquired("a", 1), "a read invoke 1", "a read ok 1 5"], 3],
  [
    "a lock that is held after the next holder acquired it",
    [...acquired("a", 1), ...acquired("b", 2), "a hold ok 1"],
    4,
  ],
  [
    "a release by a late holder that counts",
    [...acquired("a", 1), ...acquired("b", 2), "a release invoke 1", "a release ok 1"],
    5,
  ],
  [
    "a lock that its holder released and still has",
    [...acquired("a", 1), "a release invoke 1", "a release ok 1", "a hold ok 1"],
    4,
  ],
])("%s is no path of the model", async (_, lines, at) => {
  const [legal, history] = [historyOf(...acquired("a", 1)), historyOf(...lines)];
  const { refusal } = await replay([legal, history, legal]);
  expect(refusal?.event).toEqual(history[at]);
});

test("what the bounds of a search leave out is counted, by model", async () => {
  const claims = Array.from({ length: 7 }, (_, i) => `c${i} claim invoke 1`);
  const history = historyOf(...acquired("a", 1), ...claims, "a hold ok 1 50", ...released("a", 1));
  expect(await replay([history])).toEqual({
    ...{ histories: 1, events: 12 },
    models: { fence: { replayed: 9, recorded: 12 }, validity: { replayed: 5, recorded: 5 } },
  });
});

const released = (client: string, token: number) => [
  `${client} release invoke ${token}`,
  `${client} release ok ${token}`,
];

test("a history of beliefs that end in time, and of claims that nobody was told about, is a path of the models", async () => {
  const history = historyOf(
    ...["a acquire invoke", "b acquire invoke", "store owner ok 1", "a acquire ok 1"],
    ...["a hold ok 1 9", "b acquire unknown", "a hold ok 1 100"],
    ...[...released("a", 1), "store owner ok", ...acquired("c", 3), "store owner ok 3"],
    ...["c hold ok 3 16", "store owner ok", "a acquire invoke", "store owner ok 4"],
    ...["a acquire ok 4"],
  );
  expect((await replay([history])).refusal).toBeUndefined();
});

test("a lock that its holder has left early, as its clock was ahead, is a path of the models", async () => {
  const lines = [
    ...[...acquired("a", 1), "b acquire invoke", "a hold ok 1 100", "a hold fail:expired 1"],
    ...["b acquire ok 2", "b hold ok 2 200", "a release invoke 1", "a release fail:was-lost 1"],
    // It ends the belief of its own client alone.
    ...["a hold fail:expired 1", "c acquire invoke", "b hold ok 2 300"],
  ];
  expect((await replay([historyOf(...lines)])).refusal).toBeUndefined();
  const { refusal } = await replay([historyOf(...lines, "c acquire ok 3")]);
  expect(refusal?.model).toBe("validity");
});

test.each([
  [
    "validity",
    "a lock that is granted before its holder's belief has ended",
    [...acquired("a", 1), "a hold ok 1 9", ...acquired("b", 2)],
    4,
  ],
  [
    "validity",
    "a lock that its holder's renewal has not kept",
    [...acquired("a", 1), "a hold ok 1 3", "a hold ok 1 9", "b acquire invoke", "b acquire ok 2"],
    5,
  ],
  [
    "validity",
    "a lock that the store has dropped early and told its holder",
    [...acquired("a", 1), "a hold ok 1 9", "a hold fail:taken 1", ...acquired("b", 2)],
    5,
  ],
  [
    "withdrawal",
    "a lock that another client's withdrawal has freed",
    [
      ...["b acquire invoke", ...acquired("a", 1), "store owner ok 1", "b acquire unknown"],
      ...["store owner ok", "a hold ok 1 9"],
    ],
    6,
  ],
  [
    "withdrawal",
    "a client without an answer that takes itself for the holder",
    ["store owner ok", "a acquire invoke", "store owner ok", "a acquire ok 1", "a hold ok 1 9"],
    4,
  ],
  [
    "withdrawal",
    "a lock that the store keeps after its release",
    [...acquired("a", 1), "store owner ok 1", ...released("a", 1), "store owner ok 1"],
    5,
  ],
])("to the model %s, %s is no path", async (model, _, lines, at) => {
  const [legal, history] = [historyOf(...acquired("a", 1)), historyOf(...lines)];
  const { refusal } = await replay([legal, history, legal]);
  expect(refusal).toMatchObject({ model, event: history[at] });
});

const sold = (client: string, id: string, units: number, left: number) => [
  `${client} sale invoke ${id} ${units}`,
  `${client} sale ok ${id} ${units} ${left}`,
];
const reserved = ["a reserve invoke r 2", "a reserve ok r 2 3"];

test("a history of stock with repetitions, a lost answer and an expired reservation is a path of the model", async () => {
  const history = stockOf(
    5,
    ...reserved,
    "b sale invoke x 1",
    "c sale invoke y 1",
    "b sale unknown x 1",
    "c sale ok y 1 1",
    ...["b sale invoke x 1", "b sale ok x 1 2"],
    ...["a confirm invoke confirm:r 0", "a confirm fail:closed confirm:r 0 1"],
    ...["c sale invoke z 3", "c sale ok z 3 0"],
    ...["d sale invoke w 1", "d sale fail:sold-out w 1 0", ...sold("c", "z", 3, 0)],
  );
  expect((await replay([history])).refusal).toBeUndefined();
});

test.each([
  ["a sale that is applied twice", [...sold("a", "x", 1, 4), ...sold("a", "x", 1, 3)], 4],
  ["a sale that is lost", [...sold("a", "x", 1, 4), ...sold("b", "y", 1, 4)], 4],
  ["an answer to other units", [...sold("a", "x", 1, 4), ...sold("b", "x", 2, 4)], 4],
  ["a refusal while units are there", ["a sale invoke x 1", "a sale fail:sold-out x 1 5"], 2],
  ["a sale of units that are not there", sold("a", "x", 6, -2), 2],
  [
    "a reservation that is confirmed and cancelled",
    [
      ...[...reserved, "a confirm invoke confirm:r 0", "a confirm ok confirm:r 0 3"],
      ...["b cancel invoke cancel:r 0", "b cancel ok cancel:r 0 5"],
    ],
    6,
  ],
])("%s is no path of the model of stock", async (_, lines, at) => {
  const [legal, history] = [stockOf(5, ...sold("a", "x", 1, 4)), stockOf(5, ...lines)];
  const { refusal } = await replay([legal, history, legal]);
  expect(refusal).toMatchObject({ model: "stock", event: history[at] });
});

const claimed = (client: string, epoch: number) => [
  `${client} claim-run invoke`,
  `${client} claim-run ok ${epoch}`,
];

test("a history of a run with a takeover, a late holder and a cancellation is a path of the model", async () => {
  const history = runOf(
    ...claimed("a", 3),
    ...["a record invoke 3", "a record ok 3", "a park-run invoke 3", ...claimed("b", 5)],
    ...["a park-run fail:STALE 3", "c cancel-run invoke", "c cancel-run ok"],
    ...["b complete-run invoke 5", "b complete-run fail:cancelled 5", ...claimed("c", 6)],
    ...["c end-run invoke 6", "c end-run ok 6", "a claim-run invoke", "a claim-run fail:ended"],
  );
  expect((await replay([history])).refusal).toBeUndefined();
});

test.each([
  ["a later holder with a lower epoch", [...claimed("a", 2), ...claimed("b", 1)], 3],
  [
    "a record of an earlier holder",
    [...claimed("a", 1), ...claimed("b", 2), "a record invoke 1", "a record ok 1"],
    5,
  ],
  [
    "a record after the run was parked",
    [
      ...[...claimed("a", 1), "a park-run invoke 1", "a park-run ok 1"],
      ...["a record invoke 1", "a record ok 1"],
    ],
    5,
  ],
  [
    "an end that overtakes a cancellation",
    [
      ...[...claimed("a", 1), "b cancel-run invoke", "b cancel-run ok"],
      ...["a complete-run invoke 1", "a complete-run ok 1"],
    ],
    5,
  ],
  [
    "a claim of a run that has ended",
    [...claimed("a", 1), "a end-run invoke 1", "a end-run ok 1", ...claimed("b", 2)],
    5,
  ],
  [
    "a holder that is told of a loss, and goes on",
    [
      ...[...claimed("a", 1), "a record invoke 1", "a record fail:STALE 1"],
      ...["a complete-run invoke 1", "a complete-run ok 1"],
    ],
    5,
  ],
])("%s is no path of the model of runs", async (_, lines, at) => {
  const [legal, history] = [runOf(...claimed("a", 1)), runOf(...lines)];
  const { refusal } = await replay([legal, history, legal]);
  expect(refusal).toMatchObject({ model: "journal", event: history[at] });
});
