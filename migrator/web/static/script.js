// Keeps the status page up to date: asks for it again and shows those parts that have changed.
// Without it the page works as well. What is in use (a form that is open, the focus) stays.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const TIMEOUT_MS = 5000;
  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  let timer = 0;
  let isAsking = false;
  let lastGood = new Date();

  const partsOf = (root) => new Map([...root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));

  const isUsed = (part) =>
    part.querySelector("details[open]") !== null ||
    (part.contains(document.activeElement) && document.activeElement !== document.body);

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (fresh === null) throw new Error("not a status page");
    if (fresh.dataset.build !== live.dataset.build) {
      location.reload();
      return;
    }
    const before = partsOf(live);
    const now = partsOf(fresh);
    if ([...before.keys()].join() !== [...now.keys()].join()) {
      if (!isUsed(live)) live.replaceChildren(...fresh.childNodes);
    } else {
      for (const [name, part] of before) {
        if (!part.isEqualNode(now.get(name)) && !isUsed(part)) part.replaceWith(now.get(name));
      }
    }
    const state = document.getElementById("state");
    if (state !== null) document.title = `${state.textContent.trim()} – ${document.querySelector(".brand").textContent}`;
  }

  let headline = null; // as it was before the daemon was lost

  function tell(isLost) {
    const verdict = document.querySelector(".verdict");
    if (isLost) {
      const at = lastGood.toISOString().slice(11, 19);
      lost.textContent = `The daemon does not answer. This page shows the state at ${at} UTC; trying again.`;
      if (verdict !== null && headline === null) {
        headline = verdict.cloneNode(true);
        verdict.className = "verdict bad";
        document.getElementById("state").lastChild.textContent = "The daemon does not answer";
        document.title = "The daemon does not answer";
      }
    } else if (headline !== null) {
      if (verdict !== null) verdict.replaceWith(headline);
      headline = null;
    }
    lost.hidden = !isLost;
    document.body.classList.toggle("old-page", isLost);
  }

  async function ask() {
    clearTimeout(timer);
    if (isAsking || document.hidden) return;
    isAsking = true;
    try {
      const answer = await fetch("/page/live", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      tell(false);
      show(text);
      lastGood = new Date();
      live.dataset.shownAt = lastGood.toISOString(); // for tests that drive a browser
    } catch {
      tell(true);
    } finally {
      isAsking = false;
      if (!document.hidden) timer = setTimeout(ask, EVERY_MS);
    }
  }

  if (live === null || lost === null) return;
  document.addEventListener("visibilitychange", ask);
  timer = setTimeout(ask, EVERY_MS);
})();
