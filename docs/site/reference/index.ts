/** Returns the first page of the reference. */
export function referencePage(): string {
  return `# Reference

Generated from the sources, so it is never behind them:

- [API](/reference/api/): every public name of every entry, from the docstrings
- [Command line](/reference/command-line.md): the help of every command
- [HTTP](/reference/http.md): every operation of the app; the [OpenAPI document](/openapi.json)
- Tables: [PostgreSQL](/reference/schema-postgres.md), [MySQL and MariaDB](/reference/schema-mysql.md), [SQLite](/reference/schema-sqlite.md)

Written by hand, and compared with the sources by tests:

- [Errors](/errors.md): every code with cause and cure
- [Metrics and alerts](/telemetry.md): every metric, in OpenTelemetry and in Prometheus
- [Configuration](/configuration.md): URLs of stores, environment variables, and where each store keeps its keys
- [Guarantees](/guarantees.md) and their limits
`;
}
