import { afterAll } from "vitest";
import { describeInventory } from "../conformance/inventory.ts";
import { etcdInventoryUnderTest } from "../support/inventory-under-test.ts";
import { ownEtcd } from "../support/own-etcd.ts";

const server = await ownEtcd(process.env.ETCD);

afterAll(() => server[Symbol.asyncDispose]());

describeInventory("etcd", () => etcdInventoryUnderTest(server));
