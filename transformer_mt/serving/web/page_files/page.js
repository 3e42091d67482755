// The page for people: translates while one types, shows alternatives, word alignment and attention.
"use strict";

const PAUSE = 250; // milliseconds without a key until what is typed is translated
const at = (id) => document.getElementById(id);
const state = { settings: null, source: "", sentences: [], chosen: [], open: -1, word: -1, attentions: [], asking: null };

// Asking the server

async function ask(path, values, signal) {
  const body = JSON.stringify({ ...values, ...(at("key").value ? { api_key: at("key").value } : {}) });
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  const answer = response.ok ? await response.json() : await response.json().catch(() => ({})); // a proxy has pages
  if (!response.ok) throw new Error(answer.error || `The server answers with ${response.status}.`);
  return answer;
}

function tell(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("wrong", wrong);
}

async function translate() {
  clearTimeout(translate.timer);
  state.asking?.abort();
  const text = at("text").value;
  if (!text.trim()) {
    show({ source: "", sentences: [], space: "" });
    tell("");
    return;
  }
  const asking = (state.asking = new AbortController());
  at("output").classList.add("waiting");
  try {
    const values = { q: text, source: at("source").value, target: at("target").value };
    const answer = await ask("page/translate", values, asking.signal);
    show(answer);
    const name = state.settings.languages[answer.source].name;
    tell(at("source").value === "auto" ? `Translated from ${name}.` : "Translated.");
  } catch (error) {
    if (error.name === "AbortError") return;
    tell(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
  }
  if (state.asking === asking) at("output").classList.remove("waiting");
}

function soon() {
  clearTimeout(translate.timer);
  translate.timer = setTimeout(translate, PAUSE);
  count();
  mirror();
}

// Showing what it says

function show(answer) {
  state.source = answer.source;
  state.sentences = answer.sentences;
  state.space = answer.space;
  state.chosen = answer.sentences.map(() => 0);
  state.word = -1;
  at("output").classList.remove("waiting");
  open(-1);
  write();
  setDirections(); // a language that was detected may be one that nothing is translated to
}

// The hypothesis that is shown of a sentence; one that needs no translation is its own.
function hypothesis(i) {
  const sentence = state.sentences[i];
  return sentence.hypotheses[state.chosen[i]] || { text: sentence.source, src_words: [], tgt_words: [], links: [] };
}

function write() {
  const output = at("output");
  output.replaceChildren();
  state.sentences.forEach((sentence, i) => {
    const shown = hypothesis(i);
    const part = span("sentence");
    part.append(...inWords(shown.text, shown.tgt_words, (j) => ({ sentence: i, word: j })));
    output.append(sentence.target_space, part);
  });
  output.append(state.space || "");
  at("copy").disabled = !state.sentences.length;
  mirror();
  markOpen();
}

// A text as nodes: its words as spans that carry what `data` gives, and what stands between them.
function inWords(text, words, data) {
  const characters = Array.from(text); // words are counted in characters, of which some are two of JavaScript's
  const nodes = [];
  let last = 0;
  words.forEach(([start, end], j) => {
    nodes.push(characters.slice(last, start).join(""));
    const word = span("word", characters.slice(start, end).join(""));
    Object.assign(word.dataset, data(j));
    nodes.push(word);
    last = end;
  });
  nodes.push(characters.slice(last).join(""));
  return nodes;
}

function span(kind, text = "") {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}

// The same text behind what is typed, transparent, because a text field can mark no words.
function mirror() {
  const typed = at("text").value;
  const nodes = [];
  if (state.sentences.map((one) => one.space + one.source).join("") + (state.space || "") === typed) {
    state.sentences.forEach((sentence, i) => {
      nodes.push(sentence.space, ...inWords(sentence.source, hypothesis(i).src_words, (j) => ({ sentence: i, word: j })));
    });
    nodes.push(state.space || "");
  } else nodes.push(typed);
  at("mirror").replaceChildren(...nodes, "\u200b");
}

function count() {
  const most = state.settings.max_chars;
  const length = Array.from(at("text").value).length;
  at("count").textContent = `${length.toLocaleString("en")} / ${most.toLocaleString("en")}`;
}

// Words that translate each other

function link(side, sentence, word) {
  for (const old of document.querySelectorAll(".linked")) old.classList.remove("linked");
  if (sentence < 0) return [];
  const links = hypothesis(sentence).links.filter((pair) => pair[side] === word);
  const pairs = new Set(links.map((pair) => pair[1 - side]));
  const mark = (box, wanted) => {
    const all = at(box).querySelectorAll(`.word[data-sentence="${sentence}"]`);
    return Array.from(all).filter((one) => wanted(Number(one.dataset.word)) && (one.classList.add("linked"), true));
  };
  const boxes = ["mirror", "output"];
  mark(boxes[side], (j) => j === word);
  return mark(boxes[1 - side], (j) => pairs.has(j)).map((one) => one.textContent);
}

function pointAt(event, box, side) {
  const found = document.elementsFromPoint(event.clientX, event.clientY);
  const word = found.find((one) => one.classList.contains("word") && at(box).contains(one));
  if (word) link(side, Number(word.dataset.sentence), Number(word.dataset.word));
  else link(side, -1, -1);
}

// The keys go from word to word of the translation, and tell what each translates.
function goTo(place) {
  const words = Array.from(at("output").querySelectorAll(".word"));
  if (!words.length) return;
  words[state.word]?.classList.remove("here");
  state.word = Math.max(0, Math.min(words.length - 1, place));
  const word = words[state.word];
  word.classList.add("here");
  word.scrollIntoView({ block: "nearest" });
  const sources = link(1, Number(word.dataset.sentence), Number(word.dataset.word));
  tell(sources.length ? `${word.textContent} translates ${sources.join(" ")}` : `${word.textContent} translates no word`);
}

function onOutputKey(event) {
  const along = getComputedStyle(at("output")).direction === "rtl" ? -1 : 1;
  const words = at("output").querySelectorAll(".word");
  const steps = { ArrowRight: along, ArrowDown: 1, ArrowLeft: -along, ArrowUp: -1 };
  if (event.key in steps) goTo(state.word < 0 ? 0 : state.word + steps[event.key]);
  else if (event.key === "Home") goTo(0);
  else if (event.key === "End") goTo(words.length - 1);
  else if (event.key === "Escape") open(-1);
  else if ((event.key === "Enter" || event.key === " ") && words[Math.max(0, state.word)]) {
    open(Number(words[Math.max(0, state.word)].dataset.sentence));
  } else return;
  event.preventDefault();
}

// One sentence: its alternatives and its attention

function open(i) {
  state.open = i;
  state.attentions = [];
  at("attention").hidden = true;
  at("look").setAttribute("aria-expanded", "false");
  at("look").textContent = "Show attention";
  const sentence = state.sentences[i];
  at("details").hidden = !sentence?.hypotheses.length;
  if (sentence) {
    at("chosen").textContent = sentence.source;
    at("chosen").lang = state.source;
    at("chosen").dir = direction(state.source);
    at("alternatives").replaceChildren(...sentence.hypotheses.map((one, j) => alternative(one, i, j)));
  }
  markOpen();
}

function alternative(one, i, j) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = one.text;
  button.lang = at("target").value;
  button.dir = direction(at("target").value);
  button.setAttribute("aria-pressed", String(state.chosen[i] === j));
  button.addEventListener("click", () => {
    state.chosen[i] = j;
    state.word = -1;
    write();
    const looked = !at("attention").hidden;
    open(i);
    at("alternatives").querySelectorAll("button")[j].focus();
    if (looked) look();
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}

function markOpen() {
  at("output").querySelectorAll(".sentence").forEach((one, i) => one.classList.toggle("open", i === state.open));
}

async function look() {
  if (!at("attention").hidden) {
    open(state.open);
    return;
  }
  const i = state.open;
  const values = { q: state.sentences[i].source, translation: hypothesis(i).text, source: state.source };
  try {
    const answer = await ask("page/attention", { ...values, target: at("target").value });
    if (state.open !== i) return;
    state.attentions = answer.attentions;
  } catch (error) {
    tell(error.message, true);
    return;
  }
  fill(at("kind"), state.attentions.map((one, k) => [k, one.title]), state.attentions.length - 1);
  chooseKind();
  at("attention").hidden = false;
  at("look").setAttribute("aria-expanded", "true");
  at("look").textContent = "Hide attention";
}

function chooseKind() {
  const weights = state.attentions[at("kind").value].weights;
  fill(at("layer"), weights.map((_, k) => [k, String(k)]), weights.length - 1);
  fill(at("head"), [["mean", "mean of all"], ...weights[0].map((_, k) => [k, String(k)])], "mean");
  draw();
}

function draw() {
  const attention = state.attentions[at("kind").value];
  const heads = attention.weights[at("layer").value];
  const chosen = at("head").value === "mean" ? heads : [heads[at("head").value]];
  const cell = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const head = document.createElement("tr");
  head.append(cell("td", ""), ...attention.keys.map((key) => Object.assign(cell("th", shown(key)), { scope: "col" })));
  const rows = attention.queries.map((query, i) => {
    const row = document.createElement("tr");
    row.append(Object.assign(cell("th", shown(query)), { scope: "row" }));
    attention.keys.forEach((_, j) => {
      const weight = chosen.reduce((sum, one) => sum + one[i][j], 0) / chosen.length;
      const square = cell("td", weight >= 0.005 ? weight.toFixed(2).replace(/^0/, "") : "");
      square.classList.toggle("strong", weight > 0.7);
      square.style.backgroundColor = `rgba(var(--heat), ${(0.75 * weight).toFixed(3)})`;
      row.append(square);
    });
    return row;
  });
  const [top, body] = [document.createElement("thead"), document.createElement("tbody")];
  top.append(head);
  body.append(...rows);
  at("weights").replaceChildren(top, body);
  at("caption").textContent = attention.caption;
}

// A token without the mark by which it joins its neighbour, which few fonts have.
function shown(token) {
  return token.replaceAll("\uffed", "·");
}

// Languages and colours

function fill(select, options, value) {
  select.replaceChildren(...options.map(([key, name]) => new Option(name, key)));
  if (value !== undefined) select.value = value;
}

function direction(code) {
  return state.settings.languages[code]?.dir || "auto";
}

function fillTargets() {
  const { pairs, languages } = state.settings;
  const source = at("source").value;
  const targets = pairs.filter(([src]) => source === "auto" || src === source).map(([, tgt]) => tgt);
  const before = at("target").value;
  fill(at("target"), [...new Set(targets)].map((code) => [code, languages[code].name]));
  if (targets.includes(before)) at("target").value = before;
  setDirections();
}

function setDirections() {
  const [source, target] = [at("source").value, at("target").value];
  for (const id of ["text", "mirror"]) Object.assign(at(id), { dir: source === "auto" ? "auto" : direction(source) });
  at("text").lang = source === "auto" ? "" : source;
  Object.assign(at("output"), { dir: direction(target), lang: target });
  const from = source === "auto" ? state.source : source;
  at("swap").disabled = !state.settings.pairs.some(([src, tgt]) => src === target && (!from || tgt === from));
}

function swap() {
  if (at("swap").disabled) return;
  const [source, target] = [at("source").value === "auto" ? state.source : at("source").value, at("target").value];
  const text = at("output").textContent;
  at("source").value = target;
  fillTargets();
  if (source) at("target").value = source;
  setDirections();
  if (text) at("text").value = text;
  count();
  translate();
}

// Browsers give the clipboard to pages of https and of this machine itself; elsewhere what is selected is copied.
async function copy() {
  if (!navigator.clipboard) {
    getSelection().selectAllChildren(at("output"));
    const copied = document.execCommand("copy");
    return copied ? tell("Copied.") : tell("The translation is selected. Copy it by the keys.", true);
  }
  try {
    await navigator.clipboard.writeText(at("output").textContent);
    tell("Copied.");
  } catch (error) {
    tell(`The browser forbids copying: ${error.message}`, true);
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = theme === "dark" ? "Light" : "Dark";
  at("theme").setAttribute("aria-label", theme === "dark" ? "Light colours" : "Dark colours");
}

// Browsers may forbid a page its storage; the theme is then forgotten, and that is all.
function stored(ask) {
  try {
    return ask(localStorage);
  } catch {
    return null;
  }
}

async function begin() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(stored((memory) => memory.getItem("theme")) || (dark.matches ? "dark" : "light"));
  at("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    stored((memory) => memory.setItem("theme", document.documentElement.dataset.theme));
  });
  state.settings = await (await fetch("page/settings")).json();
  at("key-field").hidden = !state.settings.needs_key;
  const { pairs, languages } = state.settings;
  const sources = [...new Set(pairs.map(([src]) => src))];
  fill(at("source"), [...sources.map((code) => [code, languages[code].name]), ["auto", "Detect language"]], sources[0]);
  fillTargets();
  count();
  at("text").addEventListener("input", soon);
  at("text").addEventListener("mousemove", (event) => pointAt(event, "mirror", 0));
  at("output").addEventListener("mousemove", (event) => pointAt(event, "output", 1));
  for (const id of ["text", "output"]) at(id).addEventListener("mouseleave", () => link(0, -1, -1));
  at("output").addEventListener("keydown", onOutputKey);
  at("output").addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    if (word) open(Number(word.dataset.sentence));
  });
  at("source").addEventListener("change", () => (fillTargets(), translate()));
  at("target").addEventListener("change", () => (setDirections(), translate()));
  at("key").addEventListener("change", translate);
  at("swap").addEventListener("click", swap);
  at("copy").addEventListener("click", copy);
  at("look").addEventListener("click", look);
  at("kind").addEventListener("change", chooseKind);
  for (const id of ["layer", "head"]) at(id).addEventListener("change", draw);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.key === "Enter") translate();
    else if (event.altKey && event.key.toLowerCase() === "s") swap();
    else return;
    event.preventDefault();
  });
  if (at("text").value) soon(); // what the browser has kept of an earlier visit
}

begin();
