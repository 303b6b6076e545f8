import { mutantsOf } from "../mutant.ts";

const STORE = ["test/stores/zookeeper/store.server.test.ts"];
const FAULTS = ["test/stores/zookeeper/store-faults.server.test.ts"];
const HEARTBEAT = ["test/zookeeper/heartbeat.test.ts"];
const CONFORMANCE = ["test/stores/zookeeper.server.test.ts"];

export const ZOOKEEPER = [
  ...mutantsOf("core/stores/zookeeper/locks/enter.ts", FAULTS, [
    {
      name: "a withdrawal from ZooKeeper that believes a server that lags behind",
      find: `        session.sync(limit),
        ...childrenOf(queues, session, limit),`,
      replace: `        undefined,
        ...childrenOf(queues, session, limit),`,
      only: "leaves no node behind",
    },
    {
      name: "a node of ZooKeeper that was created without an answer, and stays",
      find: `this.#mayExist = hasCode(error, "UNKNOWN_OUTCOME");`,
      replace: `this.#mayExist = hasCode(error, "SESSION_EXPIRED");`,
      only: "leaves no node behind",
    },
  ]),
  ...mutantsOf("core/stores/zookeeper/client/liveness.ts", HEARTBEAT, [
    {
      name: "a refused heartbeat that is the last one",
      find: "if (!isAnswered) return this.#beatSoon();",
      replace: "if (!isAnswered) return;",
    },
  ]),
  ...mutantsOf("core/stores/zookeeper/client/requests.ts", HEARTBEAT, [
    {
      name: "requests whose numbers outgrow their 31 bits",
      find: "return xid === 2 ** 31 - 1 ? 1 : xid + 1;",
      replace: "return xid + 1;",
    },
  ]),
  ...mutantsOf("core/stores/zookeeper/locks/queue-entry.ts", FAULTS, [
    {
      name: "an entry without an answer to its removal that its session keeps",
      find: `    forgetNodes(this.#session, this.#prefix);
    try {`,
      replace: `    try {`,
      only: "was not answered",
    },
    {
      name: "several nodes of which the rest stays when one is gone",
      find: "for (const each of this.paths) await removeIfThere(this.#session, each, limit);",
      replace: "void removeIfThere;",
      tests: CONFORMANCE,
      only: "the rest of a set",
    },
  ]),
  ...mutantsOf("core/stores/zookeeper/locks/left-over.ts", FAULTS, [
    {
      name: "a node that a server brings back and the session keeps",
      find: "prefix !== undefined && !kept.has(prefix)",
      replace: "prefix !== undefined && kept.size < 0",
      only: "brings back",
    },
    {
      name: "a new connection that removes the nodes of held locks",
      find: "!kept.has(prefix)",
      replace: "kept.size >= 0",
      only: "brings back",
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
