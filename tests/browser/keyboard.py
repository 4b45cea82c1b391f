"""What the Tab key reaches of a page, in which order, and whether one sees where one is."""

from __future__ import annotations

from itertools import groupby

from playwright.sync_api import Page

# Marks what a keyboard has to reach, in the order of the page: of radio buttons of one name the one that is chosen.
# What a live page replaces meanwhile is known again by what it is.
MARK = """() => {
  const key = (one) => one.id || [one.tagName, one.getAttribute('href') || one.name || one.ariaLabel
    || one.textContent.trim()].join(' ');
  const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter(
    (one) => one.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true})
      && one.tabIndex >= 0 && !one.disabled && one.type !== 'hidden'
      && !(one.type === 'radio' && !one.checked));
  window.reached = [];
  document.addEventListener('focusin', (event) => {
    const style = getComputedStyle(event.target);
    const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    window.reached.push([key(event.target), ring || event.target.closest('svg') !== null]);
  });
  if (document.activeElement) document.activeElement.blur();
  window.scrollTo(0, 0);
  return all.map(key);
}"""


def faults_of_tab(page: Page) -> list[str]:
    """What is wrong with going through a page by Tab: what is not reached, out of order, or without a visible ring."""
    wanted: list[str] = page.evaluate(MARK)
    for _ in range(len(wanted) + 2):
        page.keyboard.press("Tab")
    reached: list[tuple[str, bool]] = page.evaluate("() => window.reached")
    faults = [f"not reached: {key}" for key in dict.fromkeys(wanted) if key not in {key for key, _ in reached}]
    faults += [f"no ring: {key}" for key, ring in reached if not ring]
    if not faults and wanted:
        begun = wanted.index(reached[0][0])  # where the page has put the cursor; it goes on at the top after the end
        order, met = once([*wanted[begun:], *wanted[:begun]]), once([key for key, _ in reached])
        if met[: len(order)] != order:
            faults.append(f"out of order: {reached} instead of {wanted}")
    return [f"{page.url}: {fault}" for fault in faults]


def once(keys: list[str]) -> list[str]:
    """Without repetitions in a row: what a live page replaces is given the cursor again."""
    return [key for key, _ in groupby(keys)]
