import { type Etcd, get, put, remove } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { EtcdSession, etcdElection } from "../../core/stores/etcd/index.ts";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import { type ZooKeeper, zookeeperElection } from "../../core/stores/zookeeper/index.ts";
import type { ElectionsUnderTest } from "../conformance/election.ts";
import { etcdctl, freshPrefix, queueOf } from "./etcd.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { wireTo } from "./etcd-under-test.ts";
import { faulty as faultyEtcd } from "./faulty-etcd.ts";
import { type Fault, faulty as faultyZooKeeper } from "./faulty-zookeeper.ts";
import { strike } from "./strike.ts";
import { TcpProxy } from "./tcp-proxy.ts";
import { contendersOf, endSession, freshRoot, overhear } from "./zookeeper.ts";
import type { ZooKeeperServer } from "./zookeeper-servers.ts";

/** A ttl that no test outlasts. */
const LONG = 120_000;

export async function etcdElections(server: EtcdServer): Promise<ElectionsUnderTest> {
  const opened = new AsyncDisposableStack();
  const etcd = opened.use(etcdClient({ endpoints: server.endpoints }));
  const open = async (name: string, on: Etcd = etcd) => {
    const session = await EtcdSession.open(on, { ttl: LONG });
    return { election: etcdElection(on, session, name), session };
  };
  return {
    freshName: freshPrefix,
    open,
    async openRevocable(name) {
      const candidate = await open(name);
      const lease = candidate.session.id.toString(16);
      return {
        ...candidate,
        revoke: async () => void (await etcdctl(server, "lease", "revoke", lease)),
      };
    },
    async openFaulty(name) {
      const flaky = faultyEtcd(etcd);
      const candidate = await open(name, flaky.etcd);
      return {
        ...candidate,
        strike: (n, fault) => strike(flaky, n, fault),
        deliver: flaky.deliver,
      };
    },
    async openOverWire(name) {
      const wire = opened.use(await wireTo(server));
      const client = opened.use(etcdClient({ endpoints: [`127.0.0.1:${wire.port}`] }));
      return { ...(await open(name, client)), wire };
    },
    async queue(name) {
      return (await queueOf(etcd, name)).map(({ key, version }) => ({
        writes: Number(version),
        erase: async () => void (await etcd.txn({ when: [], do: [remove(key)] })),
      }));
    },
    async addStrangers(name) {
      await etcd.txn({ when: [], do: [put(`${name}longer`, "x"), put(name, "x")] });
    },
    async forget() {
      const { revision } = await etcd.range(get("anything"));
      await etcdctl(server, "compact", String(revision));
    },
    close: () => opened.disposeAsync(),
  };
}

export async function zookeeperElections({
  servers,
}: ZooKeeperServer): Promise<ElectionsUnderTest> {
  const opened = new AsyncDisposableStack();
  const client = (at: readonly string[]) => opened.use(zookeeperClient({ servers: at }));
  const [server = ""] = servers;
  const zookeeper = client(servers);
  const admin = await zookeeper.openSession(LONG);
  const open = async (name: string, on: ZooKeeper = zookeeper) => {
    const session = await on.openSession(LONG);
    return { election: zookeeperElection(session, name), session };
  };
  return {
    freshName: freshRoot,
    open,
    async openRevocable(name) {
      const wire = opened.use(await overhear(server));
      const candidate = await open(name, client([`127.0.0.1:${wire.port}`]));
      const { owner } = candidate.session;
      return { ...candidate, revoke: async () => endSession(server, owner, await wire.password) };
    },
    async openFaulty(name) {
      const flaky = faultyZooKeeper(zookeeper);
      const candidate = await open(name, flaky.zookeeper);
      return {
        ...candidate,
        strike: (n, fault: Fault) => strike(flaky, n, fault),
        deliver: async () => {},
      };
    },
    async openOverWire(name) {
      const wire = opened.use(await TcpProxy.to(Number(server.split(":")[1])));
      return { ...(await open(name, client([`127.0.0.1:${wire.port}`]))), wire };
    },
    async queue(name) {
      const paths = (await contendersOf(admin, name)).map((node) => `${name}/${node}`);
      const nodes = await Promise.all(paths.map((path) => admin.read(path)));
      return nodes.flatMap((node, i) => {
        if (!node) return [];
        return { writes: node.stat.version + 1, erase: () => admin.remove(paths[i] ?? "") };
      });
    },
    async addStrangers(name) {
      await admin.create({ path: `${name}-longer` });
      await admin.create({ path: `${name}/no-number` });
    },
    forget: async () => {},
    close: () => opened.disposeAsync(),
  };
}
