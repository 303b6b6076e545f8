import { mutantsOf } from "../mutant.ts";

const CONFORMANCE = ["test/stores/dynamodb.server.test.ts"];
const LOCKS = ["test/stores/dynamodb/locks.server.test.ts"];
const STOCK = ["test/inventory/dynamodb.server.test.ts"];
const TRANSACTIONS = ["test/stores/dynamodb/transactions.server.test.ts"];
const JOURNAL = ["test/journal/dynamodb.all.server.test.ts"];

export const DYNAMODB = [
  ...mutantsOf("core/stores/dynamodb/locks/claims.ts", CONFORMANCE, [
    {
      name: "a claim in DynamoDB that takes a held lock",
      find: `? "attribute_not_exists(#owner)"`,
      replace: `? "attribute_not_exists(#other)"`,
      only: "one holder at a time",
    },
    {
      name: "an expired lock in DynamoDB whose owner is not compared",
      find: "(#version = :expired AND #owner = :expiredOwner))",
      replace: "(#version = :expired AND (#owner = :expiredOwner OR :one = :one)))",
      tests: [...LOCKS, ...CONFORMANCE],
      only: "delete|lost record|expir|owner",
      survives:
        "another owner has the same version only after somebody has deleted the item by hand",
    },
    {
      name: "a claim in DynamoDB of an older generation",
      find: `const isLatest = "(attribute_not_exists(#generation) OR #generation <= :generation)";`,
      replace: `const isLatest = "(attribute_not_exists(#generation) OR #generation <= :generation OR :one = :one)";`,
      tests: [...LOCKS, ...CONFORMANCE],
      only: "generation",
    },
    {
      name: "a token in DynamoDB that is not counted",
      find: `"ADD #token :one, #version :one",
        when:`,
      replace: `"ADD #version :one",
        when:`,
      only: "fence",
    },
    {
      name: "a release in DynamoDB without the owner",
      find: `when: "#owner = :owner",`,
      replace: `when: "attribute_exists(#owner) OR #owner = :owner",`,
      only: "lost|taken|frozen|release",
    },
    {
      name: "several locks in DynamoDB of which none is released when one is lost",
      find: "if (!done && drops.length > 1) {",
      replace: "if (!done && drops.length > 100) {",
      tests: CONFORMANCE,
      only: "the rest of a set",
    },
  ]),
  ...mutantsOf(
    "core/stores/dynamodb/locks/sightings.ts",
    ["test/dynamodb/sightings.test.ts"],
    [
      {
        name: "a version that is believed to stand still since another one",
        find: "if (seen?.version !== version || seen.owner !== owner) {",
        replace: "if (seen === undefined) {",
      },
      {
        name: "an equal version of another owner",
        find: "if (seen?.version !== version || seen.owner !== owner) {",
        replace: "if (seen?.version !== version) {",
      },
      {
        name: "an expiry in DynamoDB without the lock's delay",
        find: "return { expiresIn, freeIn: expiresIn + seen.delay };",
        replace: "return { expiresIn, freeIn: expiresIn };",
        tests: ["test/dynamodb/sightings.test.ts", ...CONFORMANCE],
        only: "lockDelay",
      },
      {
        name: "a lock that expires before one whole ttl of standstill",
        find: "if (!seen || !left || left.freeIn > 0) return undefined;",
        replace: "if (!seen || !left || left.freeIn > seen.ttl / 2) return undefined;",
      },
    ],
  ),
  ...mutantsOf("core/stores/dynamodb/locks/generation.ts", LOCKS, [
    {
      name: "a raised generation that old clients still use",
      find: "await sleep(2 * this.#life);",
      replace: "void sleep;",
      only: "generation is raised",
    },
    {
      name: "a claim that took longer than its generation is known",
      find: "if (this.#age <= 2 * this.#life) return;",
      replace: "if (this.#age >= 0) return;",
      only: "generation is raised",
    },
    {
      name: "a generation that a client reads once",
      find: "if (this.#age > this.#life) await this.#read(signal);",
      replace: "if (this.#readAt === undefined) await this.#read(signal);",
    },
  ]),
  ...mutantsOf("core/stores/dynamodb/inventory/fence.ts", STOCK, [
    {
      name: "a late fence at DynamoDB's stock",
      find: `"attribute_not_exists(#fence) OR #fence < :fence OR " +`,
      replace: `"attribute_not_exists(#fence) OR #fence <> :fence OR " +`,
      only: "late|fence",
    },
    {
      name: "an equal fence of another owner at DynamoDB's stock",
      find: `"(#fence = :fence AND #holder = :holder)",`,
      replace: `"(#fence = :fence AND attribute_exists(#holder))",`,
      only: "fence",
    },
    {
      name: "a claim of DynamoDB's stock that was refused and counts as one",
      find: "if (!done) throw fencedOut(fence, items[0] ?? {});",
      replace: "void [done, items];",
      only: "late|fence|claim",
    },
    {
      name: "a claim that another holder has raised before the commit",
      find: "return this.fence ? [raiseClaim(this.fence)] : [];",
      replace: "return [];",
      tests: TRANSACTIONS,
    },
    {
      name: "a claim at the commit alone",
      find: "if (!isClaimed) await claim(dynamodb, fence, tx.signal);",
      replace: "void [isClaimed, dynamodb];",
      tests: TRANSACTIONS,
    },
  ]),
  ...mutantsOf("core/stores/dynamodb/inventory/change.ts", STOCK, [
    {
      name: "a replay in DynamoDB that does not claim",
      find: "if (fence) await dynamodb.write(claim, limit);",
      replace: "",
      only: "fence|claim",
    },
    {
      name: "a late holder in DynamoDB that is told to try again",
      find: "if (failed.at(-1)) throw fencedOut(fence, items.at(-1) ?? {});",
      replace: "void [failed, fencedOut, fence, items];",
      only: "late",
    },
    {
      name: "a reservation in DynamoDB that is closed twice",
      find: `return [{ key, when: "attribute_exists(#pk)" }];`,
      replace: "return [{ key }];",
      tests: ["test/stores/dynamodb/stock.server.test.ts"],
      only: "reserv",
    },
    {
      name: "an expired reservation in DynamoDB that is confirmed",
      find: "const isOpen = isSetAside && (made?.expiresAt ?? 0) > time;",
      replace: "const isOpen = isSetAside && (made?.expiresAt ?? 0) > time - time;",
      only: "expired",
    },
    {
      name: "a reservation in DynamoDB that expires early",
      find: `? time + 1_000 + Math.ceil(operation.expiresIn / 1_000) : 0;`,
      replace: "? time + Math.ceil(operation.expiresIn / 1_000) - 1_000 : 0;",
      tests: ["test/stores/dynamodb/stock.server.test.ts"],
      only: "expire early",
    },
    {
      name: "a batch of several transactions that fails half way and counts as not done",
      find: "throw isBegun ? new UnknownOutcomeError(address, what, error) : error;",
      replace: "throw isBegun && !UnknownOutcomeError ? what : error;",
      tests: [...STOCK, "test/stores/dynamodb/stock.server.test.ts"],
    },
  ]),
  ...mutantsOf(
    "core/stores/dynamodb/inventory/turn.ts",
    ["test/stores/dynamodb/stock.server.test.ts"],
    [
      {
        name: "turns in DynamoDB that no other client waits for",
        find: "return Math.min(now.turn - before.turn, LONGEST_TURN);",
        replace: "return Math.min(0 * now.turn, LONGEST_TURN);",
        only: "turns",
      },
    ],
  ),
  ...mutantsOf("core/stores/dynamodb/inventory/expiry.ts", STOCK, [
    {
      name: "an expired reservation in DynamoDB that two clients put back",
      find: `({ key, when: "attribute_exists(#pk)" }));`,
      replace: "({ key }));",
      tests: ["test/stores/dynamodb/stock.server.test.ts"],
      only: "reserv",
    },
    {
      name: "open reservations in DynamoDB that are put back",
      find: `reservationKey(sku, time + 1, "");`,
      replace: `reservationKey(sku, 9 * time, "");`,
      only: "reserv",
    },
  ]),
  ...mutantsOf(
    "core/stores/dynamodb/client/failure.ts",
    ["test/dynamodb/failures.test.ts"],
    [
      {
        name: "a server's error that proves that nothing was done",
        find: "const isUnknown = isAtWork || isForeign || status >= 500;",
        replace: "const isUnknown = isAtWork || isForeign;",
      },
      {
        name: "a transaction at work that counts as refused",
        find: "const isUnknown = isAtWork || isForeign || status >= 500;",
        replace: "const isUnknown = isForeign || status >= 500;",
      },
      {
        name: "a throttled request that is refused for good",
        find: `if (isPassing) return new RequestFailure("passing", text, code);`,
        replace: `if (isPassing) return new RequestFailure("refused", text, code);`,
      },
    ],
  ),
  ...mutantsOf("core/stores/dynamodb/journal/lease.ts", JOURNAL, [
    {
      name: "a renewal in DynamoDB that shortens the lease",
      find: "const dueAt = Math.max(head.dueAt ?? 0, Math.ceil(now + ttl));",
      replace: "const dueAt = Math.ceil(now + ttl);",
      only: "renewal",
    },
  ]),
  ...mutantsOf("core/stores/dynamodb/journal/transactional-step.ts", TRANSACTIONS, [
    {
      name: "a transaction in DynamoDB that claims no fence before its body",
      find: "writes: [unwritten, ...fences.map(raiseClaim)],",
      replace: "writes: [unwritten, ...fences.slice(0, 0).map(raiseClaim)],",
    },
    {
      name: "a step in DynamoDB that is recorded and executed again",
      find: `const unwritten = { key: keyPlace(head, key), when: "attribute_not_exists(#pk)" };`,
      replace:
        'const unwritten = { key: keyPlace(head, `${key}?`), when: "attribute_not_exists(#pk)" };',
      tests: [...TRANSACTIONS, "test/stores/dynamodb/journal.all.server.test.ts"],
    },
  ]),
];
