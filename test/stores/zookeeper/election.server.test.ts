import { inject } from "vitest";
import { describeElection } from "../../conformance/election.ts";
import { zookeeperElections } from "../../support/elections-under-test.ts";
import { FAULTS } from "../../support/faulty-zookeeper.ts";

for (const server of inject("zookeeperServers")) {
  describeElection(server.name, FAULTS, () => zookeeperElections(server));
}
