/** The rules of politeness, in virtual time: the cases that every language shares. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Pace } from "../src/index.js";

const file = JSON.parse(readFileSync(new URL("../../polite-cases.json", import.meta.url), "utf8"));

assert.ok(file.cases.length > 30);

for (const { name, chance, steps } of file.cases) {
  test(name, () => {
    const pace = new Pace({ random: () => chance });
    for (const [number, step] of steps.entries()) {
      if ("wait" in step) {
        const wait = pace.wait(step.at);
        const isEqual = step.wait === null || wait === null ? wait === step.wait : Math.abs(wait - step.wait) < 1e-6;
        assert.ok(isEqual, `step ${number}: waits ${wait}, not ${step.wait}`);
      } else if ("send" in step) {
        pace.sent(step.at);
      } else if ("fail" in step) {
        pace.failed();
      } else {
        const refused = pace.answered(step.at, file.unix_at_zero + step.at, step.status, new Headers(step.headers));
        assert.equal(refused, [429, 503].includes(step.status), `step ${number}`);
      }
    }
  });
}
