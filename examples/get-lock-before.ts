import mysql, { type RowDataPacket } from "mysql2/promise";

const connection = await mysql.createConnection("mysql://root@127.0.0.1/shop");
const [[row]] = await connection.query<RowDataPacket[]>(
  "SELECT GET_LOCK('nightly-report', 5) AS held",
);
if (row?.held === 1) {
  console.log("report"); // report
  await connection.query("DO RELEASE_LOCK('nightly-report')");
}
await connection.end();
