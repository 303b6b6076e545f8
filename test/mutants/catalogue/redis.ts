import { mutantsOf } from "../mutant.ts";

const CLAIMS = ["test/stores/redis/claims.server.test.ts"];
const CONFORMANCE = ["test/stores/redis.server.test.ts"];
const STOCK = ["test/inventory/redis.server.test.ts"];

export const REDIS = [
  ...mutantsOf(
    "core/stores/redis/client/run-script.ts",
    ["test/redis/run-script.test.ts"],
    [
      {
        name: "a withdrawn script that is sent again",
        find: "if (signal?.aborted) throw failure;",
        replace: "void signal;",
      },
    ],
  ),
  ...mutantsOf(
    "core/stores/redis/client/silence.ts",
    ["test/redis/silence.test.ts"],
    [
      {
        name: "a silence that answers which have arrived do not end",
        find: "if (this.#left() <= 0) await nextTurn();",
        replace: "",
      },
    ],
  ),
  ...mutantsOf("core/stores/redis/locks/scripts.ts", CLAIMS, [
    {
      name: "a claim in Redis that takes a held lock",
      find: "if holder and holder ~= owner then return false end",
      replace: "",
    },
    {
      name: "a token below a lost one",
      find: "if not found[i] and tonumber(token or '0') < now then",
      replace: "if not found[i] and tonumber(token or '0') < 0 then",
      tests: ["test/faults/redis.all.server.test.ts"],
      only: "still issues higher fences",
    },
    {
      name: "a lock in Redis without an expiry",
      find: "for i = 1, n do redis.call('SET', KEYS[i], owner, 'PX', ttl) end",
      replace: "for i = 1, n do redis.call('SET', KEYS[i], owner) end",
      tests: CONFORMANCE,
      only: "expir",
    },
    {
      name: "a renewal in Redis without the owner",
      find: "if owner ~= ARGV[1] and owner ~= ARGV[4] then return 0 end",
      replace: "if not owner then return 0 end",
    },
    {
      name: "a renewal in Redis that shortens",
      find: "if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end",
      replace: "redis.call('PEXPIRE', KEYS[i], ARGV[2])",
      tests: [...CLAIMS, ...CONFORMANCE],
      only: "shorten|never|renew",
    },
    {
      name: "a renewal in Redis without the new text",
      find: "if ARGV[4] then redis.call('SET', KEYS[i], ARGV[4], 'KEEPTTL') end",
      replace: "",
    },
    {
      name: "a release in Redis without the owner",
      find: "if redis.call('GET', KEYS[i]) == ARGV[2] then ours[#ours + 1] = i end",
      replace: "ours[#ours + 1] = i",
    },
    {
      name: "a generation in Redis that is not raised",
      find: "generation = math.max(generation + 1, tonumber(ARGV[1]))",
      replace: "generation = math.max(generation, tonumber(ARGV[1]))",
      tests: CONFORMANCE,
      only: "generation",
    },
  ]),
  ...mutantsOf("core/stores/redis/inventory/scripts.ts", STOCK, [
    {
      name: "a late fence at Redis's stock",
      find: "if isNew and later then return { 'late', later } end",
      replace: "",
      only: "late|fence",
    },
    {
      name: "an equal fence of another owner at Redis's stock",
      find: "if current > fence or current == fence and held ~= ours then return current end",
      replace: "if current > fence then return current end",
      only: "fence",
    },
    {
      name: "a claim at Redis's stock that is not raised",
      find: "if current < fence then redis.call('SET', claim, ours) end",
      replace: "",
      only: "late|fence",
    },
    {
      name: "stock in Redis below zero",
      find: "if takes and tonumber(quantity) > units[1] then outcome = 'sold-out' end",
      replace: "",
    },
    {
      name: "an operation id in Redis that is forgotten",
      find: "redis.call('MSET', unpack(written))",
      replace: "",
      only: "once|replay",
    },
    {
      name: "an operation id in Redis twice in one batch",
      find: "local record = found[i] or records[key]",
      replace: "local record = found[i]",
      only: "batch",
    },
    {
      name: "an operation id in Redis for another change",
      find: "if prior and prior.payload ~= payload then",
      replace: "if prior and prior.payload == '' then",
    },
    {
      name: "an expired reservation in Redis that is confirmed",
      find: "isOpen = expiresAt and (kind == 'cancel' or tonumber(expiresAt) > now)",
      replace: "isOpen = expiresAt",
      only: "expired",
    },
    {
      name: "a reservation in Redis that is closed twice",
      find: "if made and not isOpen then outcome = 'closed' end",
      replace: "",
      only: "reserv",
    },
    {
      name: "reservations in Redis that expire at any time",
      find: "'-inf', at, 'LIMIT', 0,",
      replace: "'-inf', '+inf', 'LIMIT', 0,",
      only: "reserv",
    },
    {
      name: "a shortage in Redis that does not release expired reservations",
      find: "if isNew and takes and wanted > units[1] then",
      replace: "if false then",
      only: "expired",
    },
    {
      name: "a change of another sku's reservation in Redis",
      find: "made.outcome ~= 'applied' or made.sku ~= sku then",
      replace: "made.outcome ~= 'applied' then",
      only: "reserv",
    },
    {
      name: "a ledger in Redis that is written after the stock",
      find: "redis.call('RPUSH', ledger, unpack(entries))\n    local isDone",
      replace: "local isDone",
    },
  ]),
  ...mutantsOf("core/stores/redis/inventory/change.ts", STOCK, [
    {
      name: "a script that failed half way and counts as done",
      find: `if (answer[0] === "halfway") {`,
      replace: `if (answer[0] === "half") {`,
      tests: [...STOCK, "test/faults/redis-inventory.all.server.test.ts"],
    },
    {
      name: "a change that too few replicas have and that counts as done",
      find: `if (!replicated || confirmed >= replicated.count || !NEEDS_REPLICAS.has(answer[0])) return answer;`,
      replace: "if (confirmed >= 0) return answer;",
      tests: [
        ...STOCK,
        "test/faults/redis-inventory.all.server.test.ts",
        "test/faults/redis-failover.all.server.test.ts",
      ],
      only: "replica",
    },
    {
      name: "stock that a Redis master without its replicas says does not exist",
      find: `new Set(["done", "unknown-sku", "unknown-reservation"])`,
      replace: `new Set(["done"])`,
      tests: ["test/faults/redis.all.server.test.ts", ...STOCK],
      only: "replica",
    },
    {
      name: "a batch in Redis that stops after the release of expired reservations",
      find: `while (answer[0] === "again");`,
      replace: `while (answer[0] === "");`,
      tests: [...STOCK, "test/faults/redis-inventory.all.server.test.ts"],
      only: "reserv|expired",
    },
  ]),
  ...mutantsOf(
    "core/stores/redis/locks/waiter.ts",
    ["test/faults/redis.all.server.test.ts"],
    [
      {
        name: "a waiter in Redis that claims without its turn",
        find: "return wakeup.isTurn;",
        replace: "return true || wakeup.isTurn;",
        tests: ["test/faults/redis.all.server.test.ts"],
        only: "turn|woken|order of arrival",
        survives: "the script refuses a claim out of turn, and the waiter goes back to its place",
      },
    ],
  ),
];
