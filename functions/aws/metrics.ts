import { emf } from "../telemetry/emf.ts";

const { LOCKSTEP_SERVICE, AWS_LAMBDA_FUNCTION_NAME = "function" } = process.env;

/** The metrics of all functions of this service. */
export const metrics = emf({
  dimensions: { service: LOCKSTEP_SERVICE || AWS_LAMBDA_FUNCTION_NAME },
});
