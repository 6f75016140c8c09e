// Live parts of a page. Every page is whole without this; nothing here makes up text, the server sends it.
"use strict";
(() => {
  const place = document.getElementById("live");
  if (!place || !place.dataset.live || !window.EventSource) return;
  const stream = new EventSource(place.dataset.live);
  const log = document.getElementById("log");
  let fetching = false, again = false;

  // Take the parts of the page as they are now, and put them in the place of the old ones.
  async function refresh() {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const old of document.querySelectorAll("[data-part]")) {
          const part = fresh.getElementById(old.id);
          if (part && part.innerHTML !== old.innerHTML) old.replaceChildren(...part.childNodes);
        }
        document.title = fresh.title;
      }
    } finally {
      fetching = false;
    }
    if (again) { again = false; setTimeout(refresh, 300); }
  }

  function atEnd() {
    return window.innerHeight + window.scrollY >= document.body.scrollHeight - 120;
  }

  stream.addEventListener("log", (event) => {
    const { pieces, partial, into } = JSON.parse(event.data);
    const follow = atEnd();
    document.getElementById("no-log")?.remove();
    document.getElementById("partial")?.remove();
    for (const piece of pieces) {
      if (piece.id && document.getElementById(piece.id)) continue;
      (document.getElementById(piece.into) || log).insertAdjacentHTML("beforeend", piece.html);
    }
    if (partial) {
      const line = document.createElement("div");
      line.id = "partial";
      line.className = "ln";
      line.innerHTML = partial;
      (document.getElementById(into) || log).append(line);
    }
    if (follow) window.scrollTo({ top: document.body.scrollHeight, behavior: "instant" });
  });
  stream.addEventListener("changed", refresh);
  stream.addEventListener("reload", () => { stream.close(); location.reload(); });
  stream.addEventListener("end", () => { stream.close(); refresh(); });
  window.addEventListener("pagehide", () => stream.close());
})();
