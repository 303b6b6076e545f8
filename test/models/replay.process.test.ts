import { expect, test } from "vitest";
import { type CallEvent, replay } from "./replay.ts";

/** Makes a history of texts such as "a claim ok 1": client, operation, type, token, value. */
function historyOf(...lines: readonly string[]): readonly CallEvent[] {
  return lines.map((line, time) => {
    const [client = "", operation = "", type = "", token, value] = line.split(" ");
    const [, ending = type, code] = /^(fail):(.+)$/.exec(type) ?? [];
    return {
      time,
      client,
      operation,
      type: ending as CallEvent["type"],
      name: "cup",
      ...(token && { token }),
      ...(value && { value: Number(value) }),
      ...(code && { code }),
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
  expect(await replay([history, history])).toEqual({ histories: 2, events: 44 });
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
