import { Etcd3 } from "etcd3";

const client = new Etcd3({ hosts: "127.0.0.1:2379" });
await client
  .lock("nightly-report")
  .ttl(10)
  .do(async () => {
    console.log("report"); // report
  });
client.close();
