import { openEtcdGateway } from "lockstep/etcd";
import {
  lazy,
  lockedHandler,
  migrateHandler,
  rdsOptions,
  sqs,
  stockHandler,
  withSecret,
} from "lockstep/lambda";
import { openMysql } from "lockstep/mysql";

const { SHOP_SECRET = "", ETCD = "" } = process.env; // the ARN of a secret of RDS, and host:port

// The first event opens the stores, later ones find them. A rotated secret opens the database again.
const shop = withSecret(SHOP_SECRET, (secret) => openMysql(rdsOptions(secret)));
const etcd = lazy(() => openEtcdGateway({ endpoints: [ETCD] }));

export const migrate = migrateHandler(shop);

export const report = lockedHandler(
  async () => (await etcd()).locks,
  { name: "report" },
  async ({ day }: { day: string }, lock) => `${day} under ${lock.fence}`,
);

export const sales = stockHandler(
  async () => ({ inventory: (await shop()).inventory, locks: (await etcd()).locks }),
  {
    delay: sqs().delay,
    onAnswer: async ({ orderId, outcome }) => console.log(orderId, outcome),
  },
);
