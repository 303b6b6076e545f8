import { openEtcdGateway } from "lockstep/etcd";
import { lazy, rdsOptions, withSecret } from "lockstep/lambda";
import { openPostgres } from "lockstep/postgres";
import { telemetry } from "./telemetry.ts";

/**
 * SHOP_SECRET is the ARN of a secret that RDS keeps, and DATABASE the name of the database, which the secret of a master user
 * lacks. Without a secret, SHOP has the same JSON: see compose.yaml. ETCD has the endpoints, separated by commas.
 */
const { SHOP_SECRET, SHOP = "", DATABASE, ETCD = "" } = process.env;

const more = { ...(DATABASE && { database: DATABASE }) };
const hooks = { onEvent: telemetry.lock, onStockEvent: telemetry.stock };

/** Stock and runs. The first event opens the database, later ones find it; a rotated secret opens it again. */
export const shop = SHOP_SECRET
  ? withSecret(SHOP_SECRET, (json) => openPostgres({ ...rdsOptions(json, more), tls: {} }, hooks))
  : lazy(() => openPostgres(rdsOptions(SHOP, more), hooks));

const etcd = lazy(() => openEtcdGateway({ endpoints: ETCD.split(",") }, hooks));

export const locks = async () => (await etcd()).locks;
