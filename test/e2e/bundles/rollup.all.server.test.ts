import { describeBundles } from "../../conformance/bundles.ts";

describeBundles("rollup");
