// What the tests of the console in Chromium share: a browser, a sign-in, and what must hold on every page.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

// The packages are in the folder that NODE_PATH names.
const require = createRequire(join(process.env.NODE_PATH, "harness.mjs"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** What is wrong, as sentences. */
export const problems = [];
export const check = (is, what) => is || problems.push(what);

export const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
});

/** Opens the pages of one gateway. */
export class Console {
    constructor(url, screenshots) {
        this.url = url;
        this.screenshots = screenshots;
        mkdirSync(screenshots, { recursive: true });
    }

    /** A window, in which every script of a text, every violation of the policy and every foreign request is a problem. */
    async open(options) {
        const context = await browser.newContext({ reducedMotion: "reduce", ...options });
        await context.addInitScript(() => {
            document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
                console.error(`the policy was violated: ${violatedDirective} ${blockedURI}`);
            });
        });
        const page = await context.newPage();
        this.watch(page);
        return { context, page };
    }

    watch(page) {
        page.on("console", (message) => {
            // The page of an error is an answer of its own kind.
            const isExpected = page.url().endsWith("/unknown") && message.text().includes("404");
            if (message.type() === "error" && !isExpected) problems.push(`${page.url()}: ${message.text()}`);
        });
        page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
        page.on("dialog", (dialog) => {
            problems.push(`${page.url()}: a script of a text ran: ${dialog.message()}`);
            dialog.dismiss();
        });
        page.on("request", (request) => {
            const { origin } = new URL(request.url());
            if (origin !== this.url && origin !== "null") problems.push(`${page.url()} loads ${request.url()}`);
        });
    }

    async signIn(page, key) {
        await page.goto(`${this.url}/console/sign-in`);
        await page.fill("input[name=key]", key);
        await page.press("input[name=key]", "Enter");
        await page.waitForURL((to) => !to.pathname.includes("sign-in"));
    }

    /** The page must pass axe-core and fit its window. */
    async judge(page, name) {
        await this.screenshot(page, name);
        await fits(page, name);
        await accessibility(page, name);
    }

    async screenshot(page, name) {
        await page.screenshot({ path: join(this.screenshots, `${name}.png`), fullPage: true });
    }

    /** Opens each path in both themes, and in Japanese, each narrow and wide. */
    async everyWay(key, paths) {
        for (const colorScheme of ["light", "dark"]) {
            for (const width of [360, 1440]) {
                const { context, page } = await this.open({ colorScheme, viewport: { width, height: 900 } });
                await this.signIn(page, key);
                for (const [name, path] of paths) {
                    const response = await page.goto(this.url + path);
                    const expected = path.endsWith("/unknown") ? 404 : 200;
                    check(response.status() === expected, `${path}: ${response.status()}`);
                    await this.judge(page, `${name}-${colorScheme}-${width}`);
                }
                await context.close();
            }
        }
        for (const width of [360, 1440]) {
            const { context, page } = await this.open({ locale: "ja-JP", viewport: { width, height: 900 } });
            await this.signIn(page, key);
            for (const [name, path] of paths) {
                await page.goto(this.url + path);
                check((await page.getAttribute("html", "lang")) === "ja", `${path}: not in Japanese`);
                await fits(page, `${name}-ja-${width}`);
                await this.screenshot(page, `${name}-ja-${width}`);
            }
            await context.close();
        }
    }
}

/** Runs the test, closes the browser, and ends the process with what was found. */
export async function report(test) {
    // What was found before an unexpected end counts too.
    await test().catch((error) => problems.push(`the test ended early: ${error.stack ?? error}`));
    await browser.close();
    if (problems.length > 0) {
        console.error([...new Set(problems)].join("\n"));
        process.exit(1);
    }
}

async function accessibility(page, name) {
    // Evaluated by the browser's debugger, which the policy of the page does not bind.
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run());
    for (const { id, nodes } of violations) {
        problems.push(`${name}: axe ${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).slice(0, 3).join(" | ")}`);
    }
}

async function fits(page, name) {
    const [content, width] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    const entry = await page.evaluate(() => Math.max(0, ...[...document.querySelectorAll("nav a")].map((link) => link.offsetHeight)));
    check(entry <= 40, `${name}: an entry of the navigation is ${entry} px high`);
    check(content <= width, `${name}: the content is ${content} px wide in a window of ${width} px`);
}
