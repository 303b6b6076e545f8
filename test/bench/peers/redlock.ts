export { default } from "redlock";
