import { expect, onTestFinished, test } from "vitest";
import { Register, send } from "./register.ts";

async function newRegister(): Promise<Register> {
  const register = await Register.open();
  onTestFinished(() => register.close());
  return register;
}

const read = (holder: string, fence?: string) =>
  ({ type: "read", pid: 1, holder, ...(fence !== undefined && { fence }) }) as const;
const write = (holder: string, value: number, fence?: string) =>
  ({ type: "write", pid: 1, holder, value, ...(fence !== undefined && { fence }) }) as const;

test("the register counts a write over a value that its holder did not read as a lost update", async () => {
  const register = await newRegister();
  expect(await send(register.url, read("a"))).toMatchObject({ value: 0 });
  expect(await send(register.url, read("b"))).toMatchObject({ value: 0 });
  await send(register.url, write("b", 1));
  expect(register.counts.lost).toBe(0);
  await send(register.url, write("a", 1));
  expect(register.counts).toMatchObject({ turns: 2, lost: 1, refused: 0 });
});

test("the register refuses the reads and writes of a holder with a lower fence", async () => {
  const register = await newRegister();
  await send(register.url, read("a", "1"));
  expect(await send(register.url, read("b", "2"))).toMatchObject({ value: 0 });
  await send(register.url, write("a", 1, "1"));
  expect(await send(register.url, read("a", "1"))).toEqual({});
  await send(register.url, write("b", 1, "2"));
  expect(register.counts).toMatchObject({ turns: 2, lost: 0, refused: 2 });
});

test("a fault begins before the holder that it waits for is answered", async () => {
  const register = await newRegister();
  const begun: number[] = [];
  const met = register.ambush.lay({ at: "read", work: 7, begin: (pid) => begun.push(pid) });
  expect(await send(register.url, read("a"))).toEqual({ value: 0, work: 7 });
  expect(begun).toEqual([1]);
  expect(await met).toEqual({ pid: 1, what: "a" });
  expect(register.isWorking("a")).toBe(true);
  await send(register.url, { type: "check", pid: 1, holder: "a", isHeld: false });
  expect(register.isWorking("a")).toBe(false);
  expect(register.counts).toMatchObject({ turns: 1, gaveUp: 1 });
});
