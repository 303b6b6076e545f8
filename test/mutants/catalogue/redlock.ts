import { mutantsOf } from "../mutant.ts";

const FAULTS = ["test/faults/redlock.all.server.test.ts"];
const CONFORMANCE = ["test/stores/redlock.server.test.ts"];

export const REDLOCK = [
  ...mutantsOf("core/stores/redlock/quorum.ts", FAULTS, [
    {
      name: "a silent master that every call waits for",
      find: "const awaited = isEnough ? open.filter((master) => !this.#silent.has(master)) : open;",
      replace:
        "const awaited = isEnough ? open.filter((master) => this.masters.includes(master)) : open;",
      tests: [...FAULTS, "test/faults/redlock-killed.all.server.test.ts"],
      survives: "a quorum that agrees waits for no other master: only a split vote takes longer",
    },
  ]),
  ...mutantsOf("core/stores/redlock/claims.ts", FAULTS, [
    {
      name: "the lowest token of the masters",
      find: "others.reduce((a, b) => (a > b ? a : b), token)",
      replace: "others.reduce((a, b) => (a < b ? a : b), token)",
      tests: ["test/stores/redlock/claims.server.test.ts", ...CONFORMANCE],
      only: "fence|token|claims",
    },
    {
      name: "tokens of Redlock that no quorum has reached",
      find: "return countVotes(votes, true) >= needed ? tokens : undefined;",
      replace: "return votes ? tokens : undefined;",
      only: "a quorum has not counted up to",
    },
    {
      name: "tokens of Redlock that one master has reached",
      find: "if (there.length >= needed) return tokens;",
      replace: "if (there.length > 0) return tokens;",
      only: "across every pair of quorums",
    },
    {
      name: "a claim without a quorum that Redlock does not withdraw",
      find: "const left = await this.#withdraw(claim, tally);",
      replace: "const left = 0 * (await this.freeIn(claim.names, signal));",
      only: "nothing is left behind",
    },
  ]),
  ...mutantsOf(
    "core/stores/redlock/info.ts",
    ["test/stores/redlock/info.test.ts"],
    [
      {
        name: "the fence of a refused claim for the holder's",
        find: "const fence = isHeld ? commonest(fencesOf(holds))[0] : reached(fences);",
        replace: "const fence = reached(fences);",
      },
    ],
  ),
  ...mutantsOf(
    "core/stores/redlock/scripts.ts",
    ["test/stores/redlock/claims.server.test.ts"],
    [
      {
        name: "a token that is raised without the lock",
        find: "if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end",
        replace: "",
        tests: FAULTS,
        only: "still have the lock",
      },
    ],
  ),
];
