(() => {
  "use strict";
  const root = document.documentElement;
  const all = (what, under = document) => [...under.querySelectorAll(what)];
  root.classList.add("has-script");

  // Light and dark: the reader's system decides until somebody says otherwise.
  const kept = { get: () => { try { return localStorage.getItem("torchlift-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("torchlift-theme", value); } catch { /* a file may have no storage */ } } };
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = document.getElementById("theme");
  const show = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `switch to ${dark() ? "light" : "dark"} colours`); };
  if (kept.get()) root.dataset.theme = kept.get();
  const flip = () => { root.dataset.theme = dark() ? "light" : "dark"; kept.set(root.dataset.theme); show(); };
  theme.addEventListener("click", flip);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();

  // A command is copied with a click, where the browser lets a page do that.
  for (const command of navigator.clipboard ? all(".commands dd") : []) {
    const text = command.textContent, button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    command.append(button);
  }

  // Filters: what is pressed is shown; nothing pressed shows everything.
  const pressed = (group) => new Set(all(`[data-filter="${group}"][aria-pressed="true"]`).map((b) => b.dataset.value));
  const fits = (wanted, values) => !wanted.size || values.some((value) => wanted.has(value));
  const words = (element, name) => (element.dataset[name] || "").split(" ").filter(Boolean);
  const status = document.getElementById("shown");
  const filter = () => {
    const rules = pressed("rule"), severities = pressed("severity");
    const on = rules.size || severities.size;
    for (const finding of all(".finding")) {
      finding.hidden = !(fits(rules, words(finding, "rules")) && fits(severities, words(finding, "severities")));
    }
    let changes = 0;
    for (const file of all(".file")) {
      for (const hunk of new Set(all("tbody", file).map((body) => body.dataset.hunk))) {
        const bodies = all(`tbody[data-hunk="${hunk}"]`, file);
        const fitting = bodies.filter((body) => body.matches(".changed")
          && fits(rules, words(body, "rules")) && fits(severities, words(body, "severities")));
        changes += fitting.length;
        for (const body of bodies) body.hidden = !fitting.length;
      }
      const sheet = file.querySelector(".sheet"), none = file.querySelector(".none");
      if (sheet) {
        const empty = all("tbody.changed:not([hidden])", sheet).length === 0;
        sheet.hidden = empty;
        none.hidden = !empty;
      }
    }
    const found = all(".finding:not([hidden])").length;
    status.textContent = on ? `${changes} changes and ${found} findings shown` : "";
    document.getElementById("clear").hidden = !on;
  };
  for (const button of all("[data-filter]")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  const clear = () => { for (const button of all("[data-filter]")) button.setAttribute("aria-pressed", "false"); filter(); };
  document.getElementById("clear").addEventListener("click", clear);

  // Changes: a click on a changed line opens its reasons, j and k go from one to the next.
  let current = null;
  const mark = (body) => {
    current?.classList.remove("current");
    current = body;
    body.classList.add("current");
  };
  const toggle = (body) => { const details = body.querySelector("details"); if (details) details.open = !details.open; };
  const at = (event) => event.target instanceof Element ? event.target.closest("tbody.changed") : null;
  // A changed line tells its reasons when the mouse rests on it; they stand in the page, in the closed part above it.
  const card = Object.assign(document.createElement("div"), { className: "card", hidden: true });
  document.body.append(card);
  addEventListener("click", (event) => {
    const body = at(event);
    if (!body) return;
    card.hidden = true;
    mark(body);
    if (event.target.closest("tr.change") && !String(getSelection())) toggle(body);
  });
  let over = null;
  addEventListener("mouseover", (event) => {
    const body = at(event);
    if (body === over) return;
    over = body;
    const details = body?.querySelector("details");
    card.hidden = !details || details.open;
    if (card.hidden) return;
    card.replaceChildren(details.querySelector("dl").cloneNode(true));
    const edge = body.getBoundingClientRect();
    card.style.left = `${edge.left + scrollX + 40}px`;
    card.style.top = `${edge.bottom + scrollY + 4}px`;
  });
  // What is out of sight has no exact height yet: what is gone to is brought there again while it is laid out.
  const bring = (element, block) => {
    let left = 12;
    const again = () => {
      element.scrollIntoView({ block, behavior: "instant" });
      if (--left) requestAnimationFrame(again);
    };
    again();
  };
  const target = (hash) => document.getElementById(decodeURIComponent(hash.slice(1)));
  addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href^='#']");
    const place = link && target(link.getAttribute("href"));
    if (place) setTimeout(() => bring(place, "start"));
  });
  if (location.hash.length > 1 && target(location.hash)) bring(target(location.hash), "start");
  const step = (by) => {
    const bodies = all("tbody.changed:not([hidden])").filter((body) => !body.closest("[hidden]"));
    if (!bodies.length) return;
    const at = bodies.indexOf(current);
    const next = bodies[at < 0 ? (by > 0 ? 0 : bodies.length - 1) : Math.max(0, Math.min(bodies.length - 1, at + by))];
    mark(next);
    next.querySelector("summary")?.focus({ preventScroll: true });
    bring(next, "center");
  };
  const go = (by) => {
    const files = all("main > section");
    const top = (section) => section.getBoundingClientRect().top;
    const next = by > 0 ? files.find((s) => top(s) > 40) : files.reverse().find((s) => top(s) < -10);
    if (next) bring(next, "start");
  };
  const keys = { j: () => step(1), k: () => step(-1), n: () => go(1), p: () => go(-1), t: flip, Escape: clear,
    o: () => current && toggle(current), e: () => { const list = all(".why details"); const open = list.some((d) => !d.open); for (const d of list) d.open = open; } };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    keys[event.key]?.();
  });

  addEventListener("beforeprint", () => { for (const d of all(".why details, .more")) d.open = true; });

  // The sidebar says where one is.
  const near = new Set();
  const links = new Map(all(".side a[href^='#']").map((a) => [a.getAttribute("href").slice(1), a]));
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) isIntersecting ? near.add(target) : near.delete(target);
    const top = [...near].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0];
    if (!top) return;
    for (const [id, a] of links) a.classList.toggle("here", id === top.id);
  }, { rootMargin: "0px 0px -75% 0px" });
  for (const section of all("main > section[id]")) watch.observe(section);
})();
