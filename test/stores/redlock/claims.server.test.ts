import { RedlockClaims } from "../../../core/stores/redlock/claims.ts";
import { describeClaims } from "../../conformance/claims.ts";
import { anyPrefix, openLocal, redisServer } from "../../support/redis-under-test.ts";

describeClaims("redlock", async () => {
  const masters = redisServer("redlock").ports.map((port) => openLocal({ port }));
  return new RedlockClaims(masters, { prefix: anyPrefix(), timeout: 2_000, closeMasters: true });
});
