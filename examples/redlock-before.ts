import { Redis } from "ioredis";
import Redlock from "redlock";

const ports = [6381, 6382, 6383, 6384, 6385];
const masters = ports.map((port) => new Redis({ host: "127.0.0.1", port }));
const redlock = new Redlock(masters);
await redlock.using(["nightly-report"], 10_000, async (signal) => {
  if (signal.aborted) throw signal.error;
  console.log("report"); // report
});
for (const master of masters) master.disconnect();
