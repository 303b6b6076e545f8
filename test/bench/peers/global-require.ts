import { createRequire } from "node:module";

/** The clients of Redis and DynamoDB call a global `require`, which ES modules lack. Powertools' documentation has a banner for it. */
Object.assign(globalThis, { require: createRequire(import.meta.url) });
