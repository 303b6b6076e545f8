import { fileURLToPath } from "node:url";

/** The folder of the project. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The pages that VitePress reads. */
export const PAGES = fileURLToPath(new URL("build/pages/", import.meta.url));

/** The site that VitePress writes. */
export const SITE = fileURLToPath(new URL("build/site/", import.meta.url));

/** The sidebars, for VitePress's configuration. */
export const SIDEBARS = fileURLToPath(new URL("build/sidebars.json", import.meta.url));
