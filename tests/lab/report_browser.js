// A report of the lab in a browser: its plots can be looked at more closely, on a phone and in the dark
// too, and without the script all of it is there.
//
//   report_browser.js FILE    made by test_report_browser.sh
//
// With SHOTS=DIRECTORY it leaves pictures there.
"use strict";
const assert = require("node:assert/strict");
const { launch, open, is_fit } = require("../hosts/page/browser.js");

const address = "file://" + process.argv[2];
const shot = (page, name) => process.env.SHOTS && page.screenshot({ path: `${process.env.SHOTS}/${name}.png`, fullPage: true });

const ticks = page => page.locator("figure .axis").first().locator("text").allTextContents();
const box = page => page.locator("figure .plot svg svg").first().evaluate(svg => svg.getAttribute("viewBox") && svg.viewBox.baseVal.width);

async function zooms(page) {
  const whole = await ticks(page), width = await box(page);
  const press = name => page.getByRole("button", { name, exact: true }).first().click();
  assert.ok(await page.getByRole("button", { name: "less close", exact: true }).first().isDisabled());
  await press("closer");
  assert.ok(Math.abs((await box(page)) - width / 2) < 1, "half of it is shown");
  const half = await ticks(page);
  assert.notDeepEqual(half, whole);
  await press("later");
  assert.notDeepEqual(await ticks(page), half);
  await press("the whole time");
  assert.deepEqual(await ticks(page), whole);
  // A part of the picture is chosen with the mouse.
  await page.evaluate(() => scrollTo(0, 0));
  const plot = await page.locator("figure .plot > svg").first().boundingBox();
  await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 100);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 0.6, plot.y + 120, { steps: 3 });
  await page.mouse.up();
  const part = await box(page);
  assert.ok(part > width * 0.05 && part < width * 0.2, `${part} of ${width}`);
  await shot(page, "part");
  for (let i = 0; i < 12; i++) await press("closer");
  assert.ok((await ticks(page)).length >= 2, "ticks are there however close it is");
  await press("the whole time");
}

async function main() {
  const browser = await launch();
  try {
    const page = await open(browser, "file://", { address });
    await is_fit(page, "as it opens");
    await zooms(page);
    await page.locator("details").first().locator("summary").click();
    assert.ok(await page.locator("details table").first().isVisible());
    await is_fit(page, "with a table opened");
    for (const [name, options] of Object.entries({
      dark: { colorScheme: "dark" },
      phone: { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
    })) {
      const other = await open(browser, "file://", { address, ...options });
      await shot(other, name);
      await is_fit(other, name);
    }
    await page.emulateMedia({ media: "print" });
    assert.ok(!(await page.locator(".zoom").first().isVisible()), "buttons are not printed");
    const still = await (await browser.newContext({ javaScriptEnabled: false })).newPage();
    await still.goto(address);
    assert.equal(await still.locator(".zoom").count(), 0);
    assert.ok((await still.locator("figure .l").count()) > 3, "lines without the script");
    await still.emulateMedia({ media: "print" });
    assert.ok(!(await still.locator("summary").first().isVisible()), "closed tables are not printed");
    await shot(still, "print");
  } finally {
    await browser.close();
  }
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
