export interface Chapter {
  readonly title: string;
  readonly chinese: string;

  /** Paths in the project. */
  readonly pages: readonly string[];
}

/** Every page, in the order in which a reader may want it. */
export const CHAPTERS: readonly Chapter[] = [
  {
    title: "Start",
    chinese: "入门",
    pages: [
      "README.md",
      "docs/start.md",
      "docs/choosing.md",
      "docs/concepts.md",
      "docs/incident.md",
    ],
  },
  {
    title: "Guides",
    chinese: "指南",
    pages: [
      "docs/locks.md",
      "docs/stock.md",
      "docs/shops.md",
      "docs/workflows.md",
      "docs/entities.md",
      "docs/lambda.md",
      "docs/edge.md",
      "docs/http.md",
      "docs/containers.md",
      "docs/testing.md",
      "docs/migrating.md",
    ],
  },
  {
    title: "Operations",
    chinese: "运维",
    pages: [
      "docs/operations.md",
      "docs/upgrading.md",
      "docs/regions.md",
      "docs/telemetry.md",
      "docs/console.md",
      "docs/command-line.md",
    ],
  },
  {
    title: "Stores",
    chinese: "存储",
    pages: [
      "docs/stores/sqlite.md",
      "docs/stores/mysql.md",
      "docs/stores/postgres.md",
      "docs/stores/etcd.md",
      "docs/stores/redis.md",
      "docs/stores/redlock.md",
      "docs/stores/zookeeper.md",
      "docs/stores/dynamodb.md",
      "docs/stores/cloudflare.md",
      "docs/stores/memory.md",
    ],
  },
  {
    title: "Reference",
    chinese: "参考",
    pages: [
      "docs/guarantees.md",
      "docs/scorecard.md",
      "docs/proof.md",
      "docs/mutants.md",
      "docs/defects.md",
      "docs/errors.md",
      "docs/configuration.md",
    ],
  },
  {
    title: "Project",
    chinese: "项目",
    pages: ["docs/benchmarks.md", "docs/architecture.md", "CONTRIBUTING.md", "CHANGELOG.md"],
  },
];
