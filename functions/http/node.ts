/** Serves the app on Node, and loads the page that shows the OpenAPI document. */
export { type HttpServer, serveHttp } from "./server.ts";
export { swaggerPage } from "./swagger-page.ts";
