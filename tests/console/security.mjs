// What a hostile text, page or caller does not get in Chromium: a script in a page, a change by a form of another site, the
// console in a frame, a session that somebody else chose, and more than a viewer may do.
//
// node security.mjs URL KEY VIEWER-KEY HOSTILE-TEXTS SCREENSHOTS
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { Console, browser, check, problems, report } from "./harness.mjs";

const [url, key, viewerKey, textsFile, screenshots] = process.argv.slice(2);
const texts = JSON.parse(readFileSync(textsFile, "utf8"));
const pages = new Console(url, screenshots);
const wide = { viewport: { width: 1440, height: 900 } };
const COOKIE = "__Host-sekisho-console";

async function list(path) {
    const answer = await fetch(url + path, { headers: { authorization: `Bearer ${key}` } });
    return await answer.json();
}

/** Every text that callers and operators write is in some page. */
async function storedScripts(page) {
    const all = texts.join(" ");
    await page.goto(`${url}/console/conversations`);
    await page.click("main form summary");
    await page.fill("[name=title]", texts.find((text) => text.includes("<script>")));
    await page.fill("[name=user_input]", all);
    await page.click("main form button.main");
    await page.waitForSelector("ol.chat li.assistant", { timeout: 15_000 });
    for (const call of await page.locator("details.tool-call > summary").all()) await call.click();
    await pages.screenshot(page, "hostile-conversation");
    await page.goto(`${url}/console/plans`);
    await page.fill("[name=goal]", all);
    await page.click("main form button.main");
    await page.waitForURL(/plans\/[0-9a-f-]+/);
    await pages.screenshot(page, "hostile-plan");
    for (const text of texts.filter((text) => text.length < 60).slice(0, 25)) {
        for (const [path, field] of [["models", "model"], ["tenants", "prompt"]]) {
            await page.goto(`${url}/console/${path}`);
            await page.click("details.panel > summary");
            await page.fill("#name", text.trim() || "x");
            await page.fill(`[name='argument.${field}']`, text);
            await page.click("main button.main");
        }
    }
    const links = new Set(["", "/calls", "/tools", "/conversations", "/plans", "/models", "/skills", "/tenants", "/costs", "/connect"].map((path) => `/console${path}`));
    for (const path of [...links]) {
        await page.goto(url + path);
        for (const link of await page.locator("main a[href^='/console/']").all()) links.add(await link.getAttribute("href"));
    }
    for (const path of [...links].filter((path) => !path.includes("format=")).slice(0, 150)) await page.goto(url + path);
    check(links.size > 60, `only ${links.size} pages were opened`);
    check((await page.evaluate(() => window.pwned)) === undefined, "a text ran as a script");
}

/** A page of another site with the operator's cookie. */
async function foreignForms(context) {
    const form = `<form method="post" action="${url}/console/conversations"><input name="user_input" value="forged"></form>
        <script>document.forms[0].submit()</script>`;
    const frame = `<iframe src="${url}/console/conversations"></iframe>`;
    const server = createServer((request, response) => {
        response.setHeader("content-type", "text/html");
        response.end(request.url === "/frame" ? frame : form);
    });
    await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
    // Another name of this machine is another site.
    const other = `http://localhost:${server.address().port}`;
    const before = (await list("/api/conversations")).conversations.length;
    const page = await context.newPage();
    const [answer] = await Promise.all([
        page.waitForResponse((response) => response.url() === `${url}/console/conversations` && response.request().method() === "POST"),
        page.goto(other),
    ]);
    check([303, 403].includes(answer.status()), `a forged form is answered with ${answer.status()}`);
    check((await list("/api/conversations")).conversations.length === before, "a form of another site began a conversation");
    await page.goto(`${other}/frame`);
    const shown = await page.frames()[1].evaluate(() => document.body?.innerText ?? "").catch(() => "");
    check(!shown.includes("sekisho"), `the console is in a frame: ${shown}`);
    await page.close();
    server.close();
}

/** A session that an attacker had before the sign-in is not that of the operator. */
async function fixation() {
    const { context, page } = await pages.open(wide);
    const planted = { name: COOKIE, value: "a".repeat(64), url: url.replace("http:", "https:"), secure: true, httpOnly: true, sameSite: "Lax" };
    await context.addCookies([planted]);
    await pages.signIn(page, key);
    const [session] = (await context.cookies()).filter(({ name }) => name === COOKIE);
    check(session.value !== planted.value && session.value.length === 64, "the planted session was taken");
    check(session.httpOnly && session.secure && session.sameSite === "Lax" && session.path === "/", JSON.stringify(session));
    check(!(await page.content()).includes(session.value), "the session is in the page");
    const first = session.value;
    await pages.signIn(page, key);
    const [second] = (await context.cookies()).filter(({ name }) => name === COOKIE);
    check(second.value !== first, "a second sign-in keeps the session");
    await page.click("form[action='/console/sign-out'] button");
    await page.waitForURL(/sign-in/);
    await page.goBack();
    await page.reload();
    check(page.url().includes("sign-in"), "a page is shown after the sign-out");
    await context.close();
}

/** A viewer sees no form, and one that is forged in the page changes nothing. */
async function viewer() {
    const { context, page } = await pages.open(wide);
    await pages.signIn(page, viewerKey);
    for (const path of ["/console/conversations", "/console/plans", "/console/models", "/console/tools/calculator"]) {
        await page.goto(url + path);
        check((await page.locator("main form[method=post]").count()) === 0, `${path} has a form for a viewer`);
    }
    await pages.screenshot(page, "viewer-tool");
    for (const [path, fields] of [
        ["/console/conversations", { user_input: "x" }], ["/console/plans", { goal: "x" }],
        ["/console/models", { name: "forged" }], ["/console/tools/calculator", { mode: "run", json: '{"expression":"1"}' }],
    ]) {
        const status = await page.evaluate(async ([path, fields]) => {
            const token = document.querySelector("[name=token]").value;
            const body = new URLSearchParams({ token, ...fields });
            return (await fetch(path, { method: "POST", body })).status;
        }, [path, fields]);
        check(status === 403, `a viewer's form at ${path} is answered with ${status}`);
    }
    // The refusals are errors of the network for the browser's console.
    for (let at = problems.length - 1; at >= 0; at -= 1) {
        if (problems[at].includes("status of 403")) problems.splice(at, 1);
    }
    await context.close();
}

async function everything() {
    const { context, page } = await pages.open(wide);
    await pages.signIn(page, key);
    await foreignForms(context);
    await storedScripts(page);
    await context.close();
    await fixation();
    await viewer();
    check(browser.isConnected(), "the browser ended");
}

await report(everything);
