// The pictures of the README, by scripts/console-screenshots: screenshots.mjs URL KEY FOLDER
import { join } from "node:path";
import { Console, report } from "./harness.mjs";

const [url, key, folder] = process.argv.slice(2);
const pages = new Console(url, folder);

await report(async () => {
    const { page } = await pages.open({ viewport: { width: 1120, height: 760 } });
    await pages.signIn(page, key);
    await page.goto(`${url}/console/conversations`);
    await page.fill("[name=user_input]", "How warm is it in Tokyo, in °F?");
    await page.click("main form button.main");
    await page.waitForSelector("ol.chat details.tool-call", { timeout: 15_000 });
    await page.locator("details.tool-call > summary").first().click();
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.screenshot({ path: join(folder, "console-conversation.png") });
    await page.goto(`${url}/console/calls?code=denied`);
    await page.click("main tbody a >> nth=0");
    await page.screenshot({ path: join(folder, "console-call.png") });
});
