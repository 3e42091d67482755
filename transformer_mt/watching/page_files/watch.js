// Asks for the parts again and again, and exchanges those that have changed. What was opened stays open.
"use strict";

const EVERY = 2000, EVERY_WHILE_HIDDEN = 15000; // milliseconds
const shown = {};
let version = "";
let timer = 0;

function put(name, markup) {
  if (shown[name] === markup) return;
  shown[name] = markup;
  const place = document.getElementById(name);
  const open = [...place.querySelectorAll("details[open]")].map((one) => one.id);
  const focused = place.contains(document.activeElement) ? document.activeElement.closest("details")?.id : null;
  place.innerHTML = markup;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.querySelector("summary").focus();
}

async function ask() {
  clearTimeout(timer);
  const away = document.getElementById("away");
  try {
    const answer = await fetch("parts?have=" + version);
    if (answer.status === 200) {
      const told = await answer.json();
      for (const [name, markup] of Object.entries(told.parts)) put(name, markup);
      version = told.version;
    }
    away.hidden = answer.ok;
  } catch {
    away.hidden = false;
  }
  timer = setTimeout(ask, document.hidden ? EVERY_WHILE_HIDDEN : EVERY);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
ask();
