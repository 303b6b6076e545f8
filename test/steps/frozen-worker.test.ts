import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { createRuntime, TerminalError } from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";
import { until, within } from "../support/until.ts";

/** A journal, and the same one for a process that can be cut off: its lease ends, and it takes itself for the holder. */
function journals() {
  const journal = memoryJournal();
  let isCut = false;
  const theirs = injectFaults(journal, () => {
    if (isCut) throw new StoreUnavailableError("the journal", "cut off");
  });
  const cut = (is: boolean) => {
    isCut = is;
  };
  return { journal, theirs, cut };
}

/**
 * Executes the run "r" in a worker that is cut off once `hasBegun`, cancels the run, and has another worker undo it. Resolves to
 * how to wait for the first worker.
 */
async function undoneBesides(
  { journal, theirs, cut }: ReturnType<typeof journals>,
  workflow: ReturnType<typeof flow>,
  hasBegun: () => boolean,
) {
  const frozen = createRuntime({ journal: theirs, lease: 300 }).execute(
    workflow,
    { n: 1 },
    { id: "r" },
  );
  await until(hasBegun);
  cut(true);
  const other = createRuntime({ journal, workflows: [workflow] });
  await other.cancel("r");
  const outcome = await within(20_000, other.run(workflow, { n: 1 }, { id: "r" }));
  expect(outcome).toMatchObject({ error: { code: "RUN_CANCELLED" }, compensated: "yes" });
  return () => frozen;
}

test("a worker that wakes after its run was undone has its effect all the same, and records nothing", async () => {
  const both = journals();
  const { journal, cut } = both;
  const woken = Promise.withResolvers<void>();
  const outside: string[] = [];
  let signal: AbortSignal | undefined;
  let begun = 0;
  const charge = flow((ctx) =>
    ctx.step(
      "charge",
      async (scope) => {
        begun += 1;
        ({ signal } = scope);
        if (begun === 1) await woken.promise;
        outside.push(`charged ${scope.idempotencyKey}`);
      },
      async (_, { outcome, stepIdempotencyKey }) => {
        outside.push(`${outcome}: refund ${stepIdempotencyKey}`);
      },
    ),
  );
  const frozen = await undoneBesides(both, charge, () => begun === 1);
  cut(false);
  woken.resolve();
  expect(await within(20_000, frozen())).toMatchObject({ status: "busy" });
  await until(() => outside.length === 2);
  expect(outside).toEqual(["unknown: refund r/charge", "charged r/charge"]);
  expect(signal?.aborted).toBe(true);
  const { records = [] } = (await journal.show("r")) ?? {};
  expect(records.filter(({ outcome: is, kind }) => is === "ok" && kind === "step")).toEqual([]);
});

test("an undo that cancels a prepared payment leaves a worker that wakes nothing to confirm", async () => {
  const both = journals();
  const { cut } = both;
  const woken = Promise.withResolvers<void>();
  const payments = new Map<string, "prepared" | "confirmed" | "cancelled" | "refunded">();
  let begun = 0;
  const charge = flow(async (ctx) => {
    const payment = await ctx.step("prepare", { effect: "none" }, async ({ idempotencyKey }) => {
      payments.set(idempotencyKey, "prepared");
      return idempotencyKey;
    });
    await ctx.step(
      "charge",
      async () => {
        begun += 1;
        if (begun === 1) await woken.promise;
        if (payments.get(payment) !== "prepared") throw new Error("the payment is cancelled");
        payments.set(payment, "confirmed");
      },
      async () => {
        const isConfirmed = payments.get(payment) === "confirmed";
        payments.set(payment, isConfirmed ? "refunded" : "cancelled");
      },
    );
  });
  const frozen = await undoneBesides(both, charge, () => begun === 1);
  cut(false);
  woken.resolve();
  expect(await within(20_000, frozen())).toMatchObject({ status: "busy" });
  expect([...payments.values()]).toEqual(["cancelled"]);
});

test("the signal of a step aborts when the lease of its run has ended, and another worker executes the step with the same key", async () => {
  const { journal, theirs, cut } = journals();
  const keys: string[] = [];
  const reasons: unknown[] = [];
  const charge = flow((ctx) =>
    ctx.step("charge", async ({ idempotencyKey, signal }) => {
      keys.push(idempotencyKey);
      if (keys.length > 1) return;
      cut(true);
      await sleep(20_000, undefined, { signal }).catch(() => reasons.push(signal.reason));
    }),
  );
  const first = createRuntime({ journal: theirs, lease: 300 }).execute(
    charge,
    { n: 1 },
    { id: "r" },
  );
  await until(() => keys.length === 1);
  const other = createRuntime({ journal, workflows: [charge] });
  const outcome = await within(20_000, other.run(charge, { n: 1 }, { id: "r" }));
  expect(outcome).toMatchObject({ status: "completed" });
  expect(keys).toEqual(["r/charge", "r/charge"]);
  expect(await within(20_000, first)).toMatchObject({ status: "busy" });
  expect(reasons).toHaveLength(1);
});

describe("the undo of a payment that a frozen worker is about to confirm", () => {
  /** Cancels first: from then on a confirmation fails, and one that came before is there to be refunded. */
  const cancelAndRefund: Undo = (payment) => {
    if (!payment.cancel()) payment.refund("refund of pi_1");
  };

  test.each(MOMENTS)(
    "keeps no money if it cancels first, and the worker wakes %s",
    async (moment) => {
      const payment = await wakeInUndo(moment, {
        create: cancelAndRefund,
        confirm: cancelAndRefund,
      });
      expect(payment.balance()).toBe(0);
    },
  );

  test("keeps the money of a confirmation between a refund that found none and the cancellation", async () => {
    const refundThenCancel = {
      create: (payment: Payment) => void payment.cancel(),
      confirm: (payment: Payment) => payment.refund("refund of pi_1"),
    };
    expect((await wakeInUndo("before them", refundThenCancel)).balance()).toBe(0);
    expect((await wakeInUndo("between them", refundThenCancel)).balance()).toBe(1);
    expect((await wakeInUndo("after them", refundThenCancel)).balance()).toBe(0);
  });
});

const MOMENTS = ["before them", "between them", "after them"] as const;

type Undo = (payment: Payment) => void;

type Payment = ReturnType<typeof createPayment>;

/** A payment of a provider such as Stripe: a confirmation moves the money, and none succeeds after a cancellation. */
function createPayment() {
  let status: "created" | "cancelled" | "succeeded" = "created";
  let balance = 0;
  const refunds = new Set<string>();
  return {
    balance: () => balance,
    confirm() {
      if (status === "cancelled") throw new TerminalError("CANCELLED", "the payment is cancelled");
      status = "succeeded";
      balance += 1;
    },
    /** Returns whether no confirmation can succeed any more. */
    cancel() {
      if (status !== "succeeded") status = "cancelled";
      return status === "cancelled";
    },
    /** A second refund under a key is none. */
    refund(key: string) {
      if (status === "succeeded" && !refunds.has(key)) balance -= 1;
      refunds.add(key);
    },
  };
}

/** A worker freezes before it confirms, another one undoes the cancelled run, and the first one wakes. */
async function wakeInUndo(
  moment: (typeof MOMENTS)[number],
  undos: Readonly<Record<"create" | "confirm", Undo>>,
): Promise<Payment> {
  const both = journals();
  const { cut } = both;
  const payment = createPayment();
  const woken = Promise.withResolvers<void>();
  let begun = 0;
  let ended = 0;
  const wake = async () => {
    cut(false);
    woken.resolve();
    await until(() => ended === 1);
  };
  const pay = flow(async (ctx) => {
    await ctx.step(
      "create",
      async () => {},
      async () => {
        undos.create(payment);
        if (moment === "after them") await wake();
      },
    );
    await ctx.step(
      "confirm",
      async () => {
        begun += 1;
        await woken.promise;
        try {
          payment.confirm();
        } finally {
          ended += 1;
        }
      },
      async () => {
        if (moment === "before them") await wake();
        undos.confirm(payment);
        if (moment === "between them") await wake();
      },
    );
  });
  const frozen = await undoneBesides(both, pay, () => begun === 1);
  expect(await within(20_000, frozen())).toMatchObject({ status: "busy" });
  expect(begun).toBe(1);
  return payment;
}
