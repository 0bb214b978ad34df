// A call that may have happened, in Chromium: its run waits, the page shows the call while it is open, and the run goes on as
// it was decided, with and without JavaScript.
//
// node decision.mjs URL KEY SCREENSHOTS
import { Console, check, report } from "./harness.mjs";

const [url, key, screenshots] = process.argv.slice(2);
const pages = new Console(url, screenshots);

/** A conversation with a call that was cut off before its answer. */
async function cutOff(page) {
    await page.goto(`${url}/console/conversations`);
    await page.fill("[name=user_input]", "Pay.");
    await page.click("main form button.main");
    await page.waitForSelector("live-run p.tool-call", { timeout: 15_000 });
    await page.click("button[value=cancel]");
    // The page is read again when the run has ended.
    await page.waitForSelector("main table .tag:has-text('cancelled')", { timeout: 15_000 });
    return new URL(page.url()).pathname;
}

async function everything() {
    const { context, page } = await pages.open({ viewport: { width: 1440, height: 900 } });
    await pages.signIn(page, key);
    const path = await cutOff(page);
    await page.fill("[name=user_input]", "Go on.");
    await page.click("main button[value=say]");
    // It appears on the open page.
    await page.waitForSelector("#decision button[value=skip]", { timeout: 15_000 });
    check((await page.textContent("#decision")).includes("100 €"), "the arguments are not shown");
    await pages.judge(page, "decision");
    await page.locator("#decision button[value=skip]").focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("ol.chat:has-text('Done.')", { timeout: 15_000 });
    check((await page.locator("#decision button").count()) === 0, "a decision is asked for twice");
    check(new URL(page.url()).pathname === path, "the decision leads to another page");

    const again = await cutOff(page);
    await context.close();
    const plain = await pages.open({ javaScriptEnabled: false, colorScheme: "dark", viewport: { width: 360, height: 800 } });
    await pages.signIn(plain.page, key);
    await plain.page.goto(url + again);
    await plain.page.fill("[name=user_input]", "Go on.");
    await plain.page.click("main button[value=say]");
    const repeat = plain.page.locator("#decision button[value=repeat]");
    for (let at = 0; at < 50 && !(await repeat.count()); at += 1) {
        await plain.page.waitForTimeout(100);
        await plain.page.goto(url + again);
    }
    await pages.screenshot(plain.page, "decision-dark-360");
    await repeat.click();
    check((await repeat.count()) === 0, "what was decided is asked again");
    await plain.page.click("button[value=cancel]");
    await plain.context.close();
}

await report(everything);
