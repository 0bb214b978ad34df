#!/usr/bin/env node
// Starts the program, which is in the package for this processor, and ends as it ends.
"use strict";
const { spawn } = require("node:child_process");

const name = `sekisho-linux-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/sekisho`);
} catch {
  console.error(`sekisho: the package ${name} is not installed. It is an optional dependency, for Linux with glibc on x64 and arm64: ` +
    "install without --omit=optional; elsewhere use the container image");
  process.exit(4);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`sekisho: ${program} cannot be started: ${error.message}`);
  process.exit(4);
});
const passOn = (signal) => child.kill(signal);
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, passOn);
// A terminal sends it to both.
process.on("SIGINT", () => {});
child.on("exit", (status, signal) => {
  if (!signal) process.exit(status);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
