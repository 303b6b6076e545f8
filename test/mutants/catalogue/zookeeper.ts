import { mutantsOf } from "../mutant.ts";

const STORE = ["test/stores/zookeeper/store.server.test.ts"];
const CONFORMANCE = ["test/stores/zookeeper.server.test.ts"];

export const ZOOKEEPER = [
  ...mutantsOf("core/stores/zookeeper/locks/queue-entry.ts", STORE, [
    {
      name: "several nodes of which the rest stays when one is gone",
      find: "for (const each of this.paths) await removeIfThere(this.#session, each, limit);",
      replace: "void removeIfThere;",
      tests: CONFORMANCE,
      only: "the rest of a set",
    },
  ]),
  ...mutantsOf("core/stores/zookeeper/locks/lock-queues.ts", CONFORMANCE, [
    {
      name: "fences of ZooKeeper without the generation",
      find: "const generation = Number(read ?? 0);",
      replace: "const generation = 0 * Number(read ?? 0);",
      only: "generation",
    },
    {
      name: "a generation of ZooKeeper that two operators raise at once",
      find: "{ version: node.stat.version, signal }",
      replace: "{ version: -1, signal }",
      tests: STORE,
      only: "at once get one each",
    },
  ]),
];
