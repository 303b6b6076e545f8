import { bearer, createApp } from "lockstep/http";
import { serveHttp } from "lockstep/http/node";
import { openSqlite } from "lockstep/sqlite";

const token = "a-token-of-your-own";
await using shop = await openSqlite("shop.db");
const app = createApp({ inventory: shop.inventory, authorize: bearer([token]) });
const server = await serveHttp(app, { port: 0 }); // in production, a port of yours

// A client. The same request again changes nothing, and is answered as the first time.
const put = (path: string, body: object, key: string) => {
  const headers = { Authorization: `Bearer ${token}`, "Idempotency-Key": key };
  return fetch(server.url + path, {
    method: path.endsWith("/decrement") ? "POST" : "PUT",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
};
await put("/stock/seat-12A", { quantity: 1 }, "count-1");
const first = await put("/stock/seat-12A/decrement", { quantity: 1 }, "order-7");
const second = await put("/stock/seat-12A/decrement", { quantity: 1 }, "order-8");
console.log(first.status, second.status); // 200 409
await server.close("5s");
