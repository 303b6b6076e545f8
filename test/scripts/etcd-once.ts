import { get, put } from "../../core/stores/etcd/client/etcd.ts";
import { openerOf, type TransportName } from "../support/etcd-under-test.ts";
import { pause } from "../support/until.ts";

/**
 * etcd-once TRANSPORT ENDPOINT WIRE: watches through both, pauses while the test cuts the wire, closes the clients
 * during further calls, and must end by itself.
 */
const [transport = "", endpoint = "", wire = ""] = process.argv.slice(2);
const open = await openerOf(transport as TransportName);
const clients = [open({ endpoints: [endpoint] }), open({ endpoints: [wire] })];
for (const etcd of clients) {
  const stands = Promise.withResolvers<void>();
  etcd.watch({ prefix: "" }, { ready: () => stands.resolve(), changed() {} });
  await stands.promise;
}
process.stdout.write("begun\n");
await pause(500);
const calls = clients.flatMap((etcd) => [
  etcd.range(get("a")),
  etcd.keepAlive(1n),
  etcd.txn({ when: [], do: [put("a", "")] }),
]);
await pause(100);
for (const etcd of clients) await etcd.close();
await Promise.allSettled(calls);
process.stdout.write("closed\n");
