import { expect, test } from "vitest";
import type { Handling, Observations } from "../../functions/oversell/observations.ts";
import { renderReport } from "../../functions/oversell/report-page.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import type { TraceEvent } from "../../functions/oversell/trace.ts";

const SETTING = { command: "lockstep oversell", facts: {} };

function handled(worker: number, answer: Handling["answer"], ...trace: TraceEvent[]): Handling {
  return { worker, orderId: `order-${worker}`, fault: undefined, answer, trace };
}

/** Two holders of the lock at once, each with an answer to its order. */
function sale(name: string, ...answers: readonly ("sold" | "refused")[]): Observations {
  const sales = answers.flatMap((answer, i) => (answer === "sold" ? [`order-${i}`] : []));
  return {
    strategy: STRATEGIES.find((one) => one.name === name) as Strategy,
    stock: 1,
    totals: { remaining: 0, lowest: 0, sales },
    orders: sales.map((orderId) => ({ orderId, answer: "sold", millis: 1 })),
    handlings: answers.map((answer, i) =>
      handled(
        i,
        answer,
        { type: "holds", at: 100 * i, token: `4${i}` },
        { type: answer, at: 500 + i, sentAt: 500 },
        { type: "releases", at: 510 + i },
      ),
    ),
    ttlMillis: 90,
    stuck: 0,
    millis: 600,
  };
}

/** The words of the page, without its script, styles and drawings. */
function textOf(html: string): string {
  return html
    .replaceAll(/<(script|style|svg)\b.*?<\/\1>/gs, "")
    .replaceAll(/<[^>]*>/g, " ")
    .replaceAll(/\s+/g, " ");
}

test("the report says of a strategy that has broken its promise what the terminal says", async () => {
  const html = await renderReport([sale("lockstep", "sold", "sold")], SETTING);
  expect(html).toContain("<tr><td>lockstep</td><td>BROKEN: claims to be safe</td>");
  const kept = [sale("lockstep", "refused", "sold"), sale("renewed", "sold", "sold")];
  const verdicts = [
    ...(await renderReport(kept, SETTING)).matchAll(/<tr><td>[^<]*<\/td><td>([^<]*)/g),
  ];
  expect(verdicts.map(([, verdict]) => verdict)).toEqual(["safe", "no"]);
});

test("without JavaScript, the report has the first strategy's headline, and no controls that do nothing", async () => {
  const html = await renderReport([sale("renewed", "sold", "sold")], SETTING);
  expect(html).toContain('<h1 id="headline" class="wrong">1 in stock, 2 sold</h1>');
  expect(html).toMatch(/<p id="why">renewed sold 2 of 1: .*<\/p>/);
  expect(html).toMatch(/<noscript><style>.*\.controls.*<\/noscript>/);
  expect(html).toMatch(/<noscript><p>Without JavaScript, .*<\/noscript>/);
});

test("the report's advice names only strategies that it shows, and that have refused a late write", async () => {
  const advice = async (...observed: readonly Observations[]) =>
    /A lock that expires does not .*(?= The decisive moments)/.exec(
      textOf(await renderReport(observed, SETTING)),
    )?.[0];
  const wrong = sale("renewed", "sold", "sold");
  expect(await advice(wrong)).not.toMatch(/Choose|fence-claimed|lockstep|process-lock/);
  expect(await advice(wrong, sale("lockstep", "sold"))).not.toContain("Choose");
  const refusing = sale("lockstep", "refused", "sold");
  expect(await advice(wrong, refusing)).toMatch(/Choose lockstep above: .*$/);
  expect(await advice(wrong, sale("process-lock", "sold"), refusing)).toMatch(
    /Choose lockstep above: .* process-lock needs no slow process/,
  );
  expect(await advice(sale("fence-claimed", "refused", "sold"), refusing)).toContain(
    "Choose fence-claimed or lockstep above: ",
  );
});

test("the report of a story says which part it shows", async () => {
  const part = "the first part of the story: slow service";
  const html = await renderReport([sale("renewed", "sold")], { ...SETTING, part });
  expect(textOf(html)).toContain(`This page shows ${part}.`);
});
