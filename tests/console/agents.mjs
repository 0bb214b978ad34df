// The pages for agents in Chromium: a conversation, a plan, models, skills and tenants are begun and changed by their forms, with and
// without JavaScript, by keyboard; then every page is opened in every way.
//
// node agents.mjs URL KEY SCREENSHOTS
import { Console, check, report } from "./harness.mjs";

const [url, key, screenshots] = process.argv.slice(2);
const pages = new Console(url, screenshots);
const wide = { viewport: { width: 1440, height: 900 } };

/** Presses a button that leads to another page. */
async function press(page, selector, to) {
    // At once, because the page may go on to another address as soon as it is there.
    await Promise.all([page.waitForURL(to, { timeout: 15_000 }), page.click(selector)]);
}

async function converse(page) {
    await page.goto(`${url}/console/conversations`);
    check((await page.textContent("main")).includes("no conversation yet"), "the empty list says nothing");
    await pages.judge(page, "conversations-empty");
    await page.fill("[name=user_input]", "What is 6 times 7?");
    await press(page, "main form button.main", /conversations\/[0-9a-f-]+\?run=/);
    // It grows by itself, and ends with the receipts of its calls.
    await page.waitForSelector("ol.chat details.tool-call", { timeout: 15_000 });
    check((await page.textContent("ol.chat")).includes("It is 42."), "the answer is not shown");
    const calls = page.locator("details.tool-call");
    check((await calls.count()) === 2, `${await calls.count()} tool calls are shown`);
    // By keyboard: a call opens, and shows its path.
    await calls.nth(0).locator("summary").first().focus();
    await page.keyboard.press("Enter");
    check(await calls.nth(0).locator("ol.path").isVisible(), "a call does not open its path");
    await calls.nth(1).locator("summary").first().click();
    await pages.judge(page, "conversation-open");
    const run = await page.locator("main a[href^='/console/runs/']").first().getAttribute("href");
    const receipt = await calls.nth(0).locator("a[href^='/console/calls/']").getAttribute("href");
    await page.goto(url + receipt);
    check((await page.textContent("h1")).includes("calculator"), "the receipt is not that of the call");
    await page.goBack();
    return [new URL(page.url()).pathname, run];
}

/** The timeline of a run: a bar for each step, none before the first, and rows that open. */
async function timeline(page, run) {
    await page.goto(url + run);
    const bars = await page.locator("td.drawn rect").evaluateAll((all) => all.map((bar) => Number(bar.getAttribute("x"))));
    check(bars.length === 4, `${bars.length} steps are drawn`);
    check(bars.every((x) => x >= bars[0]), `the steps are drawn at ${bars}`);
    await page.locator("table.timeline summary").first().click();
    check(await page.locator("table.timeline details[open] > :not(summary)").first().isVisible(), "nothing opens");
    await pages.judge(page, "timeline-open");
    await page.fill("#with", run.split("/").pop());
    await press(page, "main form.filters button", /compare\?with=/);
    check((await page.textContent("main")).includes("Their steps are equal."), "a run differs from itself");
}

async function plan(page) {
    await page.goto(`${url}/console/plans`);
    await page.fill("[name=goal]", "Which of Tokyo (21.5 °C) and Osaka (24 °C) is warmer, in °F?");
    await page.selectOption("[name=agent]", "planned");
    await press(page, "main form button.main", /plans\/[0-9a-f-]+/);
    const path = new URL(page.url()).pathname;
    for (let at = 0; at < 50 && !(await page.locator("button[value=approve]").count()); at += 1) {
        await page.waitForTimeout(100);
        await page.reload();
    }
    await pages.judge(page, "plan-waiting");
    await page.click("button[value=approve]");
    await page.waitForSelector("ol.steps li.completed >> nth=1", { timeout: 15_000 });
    await page.waitForSelector("#answer", { timeout: 15_000 });
    check((await page.locator("live-page").count()) === 0, "a finished plan is still followed");
    return path;
}

async function resources(page) {
    await page.goto(`${url}/console/models`);
    await page.click("details.panel > summary");
    await page.fill("#name", "a-model-with-quite-a-long-name-that-nobody-reads-to-its-end");
    await page.fill("[name='argument.model']", "provider/model-1");
    await pages.judge(page, "model-form");
    await press(page, "main button.main", /models\/a-model/);
    const model = new URL(page.url()).pathname;
    await page.goto(`${url}/console/skills`);
    await page.click("details.panel > summary");
    await page.fill("#name", "pdf");
    await page.fill("[name='argument.description']", "Reads PDFs, and writes what they say as Markdown. Use it for each file of this kind.");
    await page.fill("[name='argument.instructions']", "# PDF\n\nRun `scripts/read.py` with the path of the file, and read what it prints.");
    await page.fill("[name='argument.files']", JSON.stringify({ "scripts/read.py": "print('pdf')\n" }));
    await press(page, "main button.main", /skills\/pdf/);
    const skill = new URL(page.url()).pathname;
    await page.goto(`${url}/console/tenants`);
    await page.click("details.panel > summary");
    await page.fill("#name", "acme");
    await page.fill("[name='argument.models/0']", "talk");
    await page.click("button[name=more][value='/models']");
    check((await page.inputValue("[name='argument.models/0']")) === "talk", "a further entry forgets the first");
    await page.fill("[name='argument.models/1']", "planned");
    // The Enter key saves, and adds no entry.
    await page.press("[name='argument.models/1']", "Enter");
    await page.waitForURL(/tenants\/acme/, { timeout: 15_000 });
    check((await page.inputValue("[name='argument.models/1']")) === "planned", "the tenant is not as it was filled in");
    return [model, skill, new URL(page.url()).pathname];
}

/** A tool with objects, lists, choices and a file. */
async function tryIt(page, name) {
    await page.goto(`${url}/console/tools/nested`);
    await page.fill("[name='argument.to/0/name']", "Ann");
    await page.click("button[name=more][value='/to']");
    await page.fill("[name='argument.to/1/name']", "B");
    await page.check("[name='argument.days'][value=tue]");
    await page.setInputFiles("input[type=file]", { name: "a.png", mimeType: "image/png", buffer: Buffer.from("png") });
    await page.press("[name='argument.to/1/name']", "Enter");
    await page.waitForSelector("#problems");
    // The summary leads to the field.
    await page.click("#problems a");
    await pages.screenshot(page, `${name}-problems`);
    await page.fill("[name='argument.to/1/name']", "Bob");
    await page.click("main button[value=run]:not(.unseen)");
    await page.waitForSelector("#reply");
    const reply = await page.textContent("#reply");
    check(reply.includes("cG5n") && reply.includes("a.png") && reply.includes("Bob"), `the reply is ${reply}`);
    check((await page.locator("#reply ol.path li").count()) === 8, "the path has not eight stages");
    await pages.judge(page, name);
}

async function everything() {
    const { context, page } = await pages.open(wide);
    await pages.signIn(page, key);
    const [conversation, run] = await converse(page);
    await timeline(page, run);
    const finished = await plan(page);
    const [model, skill, tenant] = await resources(page);
    await tryIt(page, "tried");
    await context.close();

    // Without JavaScript the same can be done.
    const plain = await pages.open({ javaScriptEnabled: false, ...wide });
    await pages.signIn(plain.page, key);
    await plain.page.goto(url + conversation);
    await plain.page.fill("[name=user_input]", "Again");
    await press(plain.page, "main button[value=say]", /run=/);
    for (let at = 0; at < 100 && (await plain.page.locator("li.message.user").count()) < 2; at += 1) {
        await plain.page.waitForTimeout(100);
        await plain.page.goto(url + conversation);
    }
    check((await plain.page.locator("li.message.user").count()) === 2, "without JavaScript nothing more is said");
    await plain.page.goto(`${url}/console/tools/nested`);
    await plain.page.fill("[name='argument.to/0/name']", "Ann");
    await plain.page.press("[name='argument.to/0/name']", "Enter");
    await plain.page.waitForSelector("#reply");
    await plain.context.close();

    // At 360 px too.
    const narrow = await pages.open({ viewport: { width: 360, height: 800 } });
    await pages.signIn(narrow.page, key);
    await tryIt(narrow.page, "tried-360");
    await narrow.page.goto(url + conversation);
    await narrow.page.locator("details.tool-call > summary").first().click();
    await pages.judge(narrow.page, "conversation-open-360");
    // The language is chosen by a link, and remembered.
    await narrow.page.goto(`${url}/console/costs?days=7`);
    await narrow.page.click(".languages a");
    check((await narrow.page.getAttribute("html", "lang")) === "ja", "the link changes no language");
    check(narrow.page.url().includes("days=7"), "the link forgets the address");
    await narrow.page.goto(`${url}/console/connect`);
    check((await narrow.page.getAttribute("html", "lang")) === "ja", "the language is not remembered");
    await narrow.context.close();

    await pages.everyWay(key, [
        ["conversations", "/console/conversations"], ["conversation", conversation],
        ["run", run], ["runs-compared", `${run}/compare?with=${run.split("/").pop()}`], ["plans", "/console/plans"],
        ["plan", finished], ["models", "/console/models"], ["model", model], ["skills", "/console/skills"], ["skill", skill], ["tenants", "/console/tenants"],
        ["tenant", tenant], ["costs", "/console/costs"], ["connect", "/console/connect"], ["nested", "/console/tools/nested"],
    ]);
}

await report(everything);
