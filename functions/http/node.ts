/** The app on Node: a server, and the files of the page that shows the OpenAPI document. */
export { type HttpServer, type ServerOptions, serveHttp } from "./server.ts";
export { swaggerPage } from "./swagger-page.ts";
