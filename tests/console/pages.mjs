// Opens the pages of the console in Chromium: both themes, 360 and 1440 px, in Japanese, without JavaScript, by keyboard.
// Each page must pass axe-core, break no rule of its Content-Security-Policy, run no script of a tool's text, and not be wider
// than its window. Screenshots are written to a folder.
//
// node pages.mjs URL KEY SCREENSHOTS [TOOL...]
import { Console, check, problems, report } from "./harness.mjs";

const [url, key, screenshots, ...tools] = process.argv.slice(2);
const pages = new Console(url, screenshots);
const open = (options) => pages.open(options);
const signIn = (page) => pages.signIn(page, key);

// A result that was too large for a model is stored.
const large = await fetch(`${url}/tools/json_query/execute`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", prefer: "handle" },
    body: JSON.stringify({ arguments: { query: "[].{id: @, name: 'a row of many'}", data: [...Array(3_000).keys()] } }),
});
const result = (await large.json()).output.result_handle;

// A session of Python with some variables, and the tree of the calls of a program. The interpreter starts with the first call.
async function python(args) {
    for (let attempt = 0; attempt < 60; attempt += 1) {
        const reply = await fetch(`${url}/tools/python_executor/execute`, {
            method: "POST",
            headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
            body: JSON.stringify({ arguments: args }),
        });
        if (reply.status !== 503) return reply.json();
        await new Promise((resolve) => setTimeout(resolve, 500));
    }
    throw new Error("the interpreter did not start");
}
await python({ session: "monday", code: "import math\nrows = list(range(9))\ndef a_function_with_a_long_name_that_no_column_holds():\n  pass" });
const calls = "from host import tools\nfor n in range(3): tools.echo(n=n)\ntry:\n  tools.fail()\nexcept Exception:\n  pass";
const program = (await python({ code: calls })).receipt.call_id;

const paths = ["/console", "/console/calls", "/console/tools", "/console/tools?q=nothing-has-this-name", "/console/sign-in", "/console/calls/unknown"];
// Those that administrators see too.
const operation = [
    "/console/calls/history",
    "/console/events",
    "/console/failures",
    "/console/figures?tool=echo&range=7d&before=day",
    "/console/servers",
    "/console/map",
    "/console/servers/add",
    "/console/servers/lock",
    "/console/servers/openapi/zoo",
    "/console/servers/openapi/many",
    "/console/tools?source=openapi%3Amany&page=3",
    "/console/servers/mcp/gone",
    "/console/policies",
    "/console/python-tools",
    "/console/approvals",
    "/console/approvals?status=any",
    "/console/inbox",
    "/console/search",
    "/console/search?q=calc",
    `/console/policies?${new URLSearchParams({ tool: "echo", arguments: "{}", caller: "bob" })}`,
    "/console/flow",
    "/console/limits",
    "/console/keys",
    "/console/catalogue",
    "/console/sign-ins",
    "/console/results",
    `/console/results/${result}`,
    `/console/results/${result}?offset=2990`,
    `/console/results/${result}?query=length(%40)`,
    "/console/sessions",
    "/console/sessions/monday",
    "/console/program-runs",
    `/console/calls/${program}`,
    "/console/configuration?source=file",
    "/console/configuration/changes",
];
const all = [...paths, ...operation, ...tools.map((tool) => `/console/tools/${encodeURIComponent(tool)}`)];
const fileName = (path) => path.replace(/[^a-z0-9]+/gi, "_").slice(0, 60);

async function everything() {
    await pages.everyWay(key, all.map((path) => [fileName(path), path]));

    {
        // Without JavaScript: sign in, search, call a tool, sign out.
        const { context, page } = await open({ javaScriptEnabled: false, viewport: { width: 1440, height: 900 } });
        await signIn(page);
        await page.goto(`${url}/console/tools?q=calculator`);
        await page.click("main a[href='/console/tools/calculator']");
        await page.fill("[name='argument.expression']", "6*7");
        await page.click("main button[value=run]:not(.unseen)");
        check((await page.textContent("main")).includes("42"), "without JavaScript the calculator does not answer");
        await pages.screenshot(page, "called-without-javascript");
        await context.close();
    }

    {
        // Without JavaScript too: approve a tool, connect a server again, test one, explain a call, check a configuration.
        const { context, page } = await open({ javaScriptEnabled: false, viewport: { width: 1440, height: 900 } });
        await signIn(page);
        const main = () => page.textContent("main");
        await page.goto(`${url}/console/servers`);
        check((await main()).includes("quarantined"), "the list of servers does not name a quarantined tool");
        await page.click("a[href='/console/servers/lock']");
        await page.check("fieldset:has-text('zoo__pets') input[type=checkbox]");
        await page.click("main form[method=post] button");
        check((await main()).includes("Approved, and written to the lock"), "the approval is not shown");
        await page.goto(`${url}/console/tools?q=zoo__pets`);
        check((await page.locator("main tbody a[href$='/zoo%5F%5Fpets']").count()) === 1, "the approved tool is not offered");
        await page.goto(`${url}/console/servers/mcp/gone`);
        await page.click("button[value=reconnect]");
        check((await main()).includes("It is being connected again"), "the reconnection is not shown");
        await page.goto(`${url}/console/servers/add`);
        await page.fill("#mcp-name", "nowhere");
        await page.fill("#mcp-url", "https://not-allowed.example/mcp");
        await page.press("#mcp-url", "Enter");
        check((await page.textContent("[role=alert]")).includes("not an allowed host"), "the test of a server does not say why");
        check((await page.inputValue("#mcp-name")) === "nowhere", "the form has lost what was written");
        await pages.screenshot(page, "server-refused");
        // A collection is added, and removed by its name.
        const document = { openapi: "3.1.0", info: { title: "t", version: "1" }, servers: [{ url: "https://zoo.example" }],
            paths: { "/a": { get: { operationId: "a", responses: { 200: { description: "ok" } } } } } };
        await page.goto(`${url}/console/servers/add`);
        await page.fill("#openapi-name", "passing");
        await page.fill("#openapi-spec_inline", JSON.stringify(document));
        await page.click("section:has(#add-openapi) button[value=add]");
        await page.waitForURL(/servers\/openapi\/passing$/);
        await page.click("details.manage > summary");
        await pages.screenshot(page, "server-remove");
        await page.fill("#confirmed", "passing");
        await page.press("#confirmed", "Enter");
        check((await main()).includes("It was removed") && !(await main()).includes("passing"), "the collection is still there");
        await page.goto(`${url}/console/policies`);
        await page.fill("#tool", "file_write");
        await page.fill("#caller", "bob");
        await page.press("#caller", "Enter");
        check((await main()).includes("It would be stopped at"), "the call is not explained");
        await page.goto(`${url}/console/configuration`);
        await page.fill("#text", "limits: {max_queued: many}");
        await page.click("main form[method=post] button");
        check((await main()).includes("would not be taken over"), "a wrong configuration is not refused");
        await pages.screenshot(page, "configuration-refused");
        await context.close();
    }

    {
        // The overview changes while it is open, and a part with the focus stays.
        const { context, page } = await open({ viewport: { width: 1440, height: 900 } });
        await signIn(page);
        await page.goto(`${url}/console`);
        await page.waitForSelector("live-parts [data-state=live]");
        const calls = () => page.evaluate(() => document.querySelector("#state").textContent);
        const before = await calls();
        await page.focus("#refusals a");
        await page.evaluate(() => { document.activeElement.dataset.kept = "1"; });
        const other = await context.newPage();
        await other.goto(`${url}/console/tools/calculator`);
        await other.fill("[name='argument.expression']", "1+");
        await other.click("main button[value=run]:not(.unseen)");
        await page.waitForFunction((text) => document.querySelector("#state").textContent !== text, before, { timeout: 10_000 })
            .catch(() => problems.push("the overview does not change"));
        check(await page.evaluate(() => document.activeElement.dataset.kept === "1"), "the overview took the focus away");
        await context.close();
    }

    {
        // By keyboard: the first stop leads to the content, and every stop is visible.
        const { context, page } = await open({ viewport: { width: 1440, height: 900 } });
        await signIn(page);
        await page.goto(`${url}/console/tools`);
        await page.keyboard.press("/");
        check(await page.evaluate(() => document.activeElement.matches("[data-search]")), "`/` does not lead to the search");
        // The list follows what is typed, and so does the address.
        await page.keyboard.type("calculat");
        await page.waitForFunction(() => document.querySelectorAll("#found tbody tr").length === 1, undefined, { timeout: 10_000 })
            .catch(() => problems.push("the list does not follow what is typed"));
        check(page.url().includes("q=calculat"), `the address is ${page.url()}`);
        check(await page.evaluate(() => document.activeElement.matches("[data-search]")), "the search lost the focus");
        await page.goto(`${url}/console/tools`);
        for (let stop = 0; stop < 12; stop += 1) {
            await page.keyboard.press("Tab");
            const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
            check(outline !== "none", `stop ${stop} of the keyboard is not visible`);
        }
        // The cookie is out of reach of scripts.
        check(!(await page.evaluate(() => document.cookie)).includes("sekisho-console"), "a script can read the session");
        const [cookie] = (await context.cookies()).filter(({ name }) => name === "__Host-sekisho-console");
        check(cookie?.httpOnly && cookie.secure && cookie.sameSite === "Lax", `the cookie is ${JSON.stringify(cookie)}`);
        await context.close();
    }

    {
        // The window of a small laptop: each entry of the navigation is reached, and the palette and keys lead to pages.
        const { context, page } = await open({ viewport: { width: 1280, height: 633 } });
        await signIn(page);
        await page.goto(`${url}/console`);
        for (const entry of await page.locator(".side a, .side button:not(.unseen)").all()) {
            await entry.scrollIntoViewIfNeeded();
            const box = await entry.boundingBox();
            check(box && box.y >= 0 && box.y + box.height <= 633, `${await entry.textContent()} is not reached at a height of 633 px`);
        }
        await page.keyboard.press("/");
        check(await page.evaluate(() => document.activeElement.matches(".palette input")), "`/` does not lead to the palette");
        await page.keyboard.type("calculato");
        await page.locator("#palette a[href='/console/tools/calculator']").waitFor({ timeout: 10_000 })
            .catch(() => problems.push("the palette does not find the calculator"));
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
        await page.waitForURL(`${url}/console/tools/calculator`).catch(() => problems.push("the palette does not open what it found"));
        await page.keyboard.press("g");
        await page.keyboard.press("c");
        await page.waitForURL(`${url}/console/calls`).catch(() => problems.push("`g c` does not lead to the calls"));
        const time = page.locator("main tbody time").first();
        check((await time.getAttribute("title")).includes(await time.getAttribute("datetime")), "a time has no exact one on hover");
        // A view is kept, and leads to its address.
        await page.goto(`${url}/console/calls?tool=calculator`);
        await page.fill("saved-views input", "Sums");
        await page.press("saved-views input", "Enter");
        await page.goto(`${url}/console/calls`);
        await page.click("saved-views a:has-text('Sums')");
        await page.waitForURL(`${url}/console/calls?tool=calculator`).catch(() => problems.push("the view does not lead to its address"));
        await pages.screenshot(page, "saved-view");
        await context.close();
    }

    {
        // A page whose session has ended says so, and its form is filled again after the sign-in.
        const { context, page } = await open({ viewport: { width: 1440, height: 900 } });
        await signIn(page);
        await page.goto(`${url}/console/keys`);
        await page.click("main details.panel > summary");
        await page.fill("#person", "carol");
        // The browser reports the answer 401.
        page.removeAllListeners("console");
        await context.clearCookies();
        await page.evaluate(() => document.dispatchEvent(new Event("lost")));
        const link = page.locator("main .notice a[href^='/console/sign-in']");
        await link.waitFor({ timeout: 10_000 }).catch(() => problems.push("the page does not notice the end of its session"));
        await pages.screenshot(page, "session-ended");
        await link.click();
        await page.fill("input[name=key]", key);
        await page.press("input[name=key]", "Enter");
        await page.waitForURL(`${url}/console/keys`);
        check((await page.inputValue("#person")) === "carol", "the form has lost what was written before the session ended");
        await context.close();
    }

    {
        // A live page shows a call behind a button, and moves nothing before.
        const { context, page } = await open({ viewport: { width: 1440, height: 900 } });
        await signIn(page);
        await page.goto(`${url}/console/calls`);
        await page.waitForTimeout(500);
        const before = await page.locator("main tbody tr").count();
        const other = await context.newPage();
        await other.goto(`${url}/console/tools/calculator`);
        await other.fill("[name='argument.expression']", "1+1");
        await other.click("main button[value=run]:not(.unseen)");
        const button = page.locator("main [aria-live] button, main live-calls button");
        await button.waitFor({ state: "visible", timeout: 10_000 }).catch(() => problems.push("no new call is announced"));
        check((await page.locator("main tbody tr").count()) === before, "the list moved by itself");
        await button.click().catch(() => problems.push("the new calls cannot be shown"));
        check((await page.locator("main tbody tr").count()) > before, "the new call is not shown");
        await pages.screenshot(page, "live-calls");
        await context.close();
    }

}

await report(everything);
