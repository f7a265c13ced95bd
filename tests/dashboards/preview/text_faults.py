"""What a person could not read on a page: texts that are clipped or cover each other, and legends with many rows."""

# A text is clipped if its box leaves the box of an element around it that hides what leaves it; an ellipsis begins at
# the padding. What can be scrolled to is not clipped, but a column of a table that is only found by scrolling sideways
# counts on a wide screen.
FAULTS = """(() => {
  const faults = [];
  for (const list of innerWidth >= 1440 ? document.querySelectorAll(".legend .list") : []) {
    const rows = new Set([...list.children].map((entry) => Math.round(entry.getBoundingClientRect().top))).size;
    const title = list.closest(".panel").querySelector("h2").textContent;
    if (rows > 2) faults.push([`legend of ${rows} rows`, title, list.innerText]);
  }
  for (const panel of document.querySelectorAll(".panel")) {
    const title = panel.querySelector("h2")?.textContent ?? "";
    const shown = [];
    const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, text = node.textContent.trim();
      if (!text || !node.parentElement.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const { left, top, right, bottom } of range.getClientRects()) {
        const box = { node, text, left, top, right, bottom };
        for (let area = node.parentElement; area !== panel.parentElement; area = area.parentElement) {
          const style = getComputedStyle(area), clip = area.getBoundingClientRect();
          if (style.overflowX === "visible" || style.display === "inline") continue;
          const [before, after] = ["paddingLeft", "paddingRight"].map((side) =>
            style.textOverflow === "ellipsis" ? parseFloat(style[side]) : 0);
          const sideways = box.right > clip.right - after + 1 || box.left < clip.left + before - 1;
          const downwards = Math.max(box.bottom - clip.bottom, clip.top - box.top) > (bottom - top) / 4;
          const scrolls = ["auto", "scroll"].includes(style.overflowX);
          if (scrolls ? sideways && innerWidth > 768 : sideways || downwards) faults.push(["clipped", title, text]);
          box.left = Math.max(box.left, clip.left);
          box.right = Math.min(box.right, clip.right);
          box.top = Math.max(box.top, clip.top);
          box.bottom = Math.min(box.bottom, clip.bottom);
        }
        if (box.right > box.left && box.bottom > box.top) shown.push(box);
      }
    }
    shown.forEach((one, at) => shown.slice(at + 1).filter(({ node }) => node !== one.node).forEach((other) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 3) faults.push(["overlap", title, `${one.text} | ${other.text}`]);
    }));
  }
  return faults;
})()"""
