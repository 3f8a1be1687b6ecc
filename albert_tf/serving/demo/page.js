// The page of bin/demo. All text from outside goes in as textContent, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const NUM_COLORS = 6;
const SLOW = 400; // milliseconds: a model that takes longer answers on request only
const PAUSE = 500; // milliseconds without typing, after which a fast one answers by itself
let models = [];
let chosen = 0;
let latest = 0; // number of the newest request: older answers are dropped
let timer = 0;
let lastTime = Infinity;
const typed = new Map(); // what was typed for each model

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

async function request(path, body) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}

function show(...elements) {
  byId("answer").replaceChildren(...elements);
}

function makePart(title, className = "") {
  const part = make("article", `part ${className}`);
  if (title) part.append(make("h3", "", title));
  return part;
}

const renderers = {
  bars({ title, bars }) {
    const isLong = bars.some(({ label }) => label.length > 28);
    const part = makePart(title, isLong ? "long" : "");
    for (const { label, value } of bars) {
      const row = make("div", "bar");
      const track = make("div", "track");
      const fill = make("div", value < 0 ? "fill below" : "fill");
      fill.style.width = `${Math.min(Math.abs(value), 1) * 100}%`;
      track.append(fill);
      row.append(make("div", "label", label), track, make("div", "number", value.toFixed(3)));
      part.append(row);
    }
    return part;
  },
  text({ title, segments }) {
    const part = makePart(title);
    const text = make("div", "text");
    const names = [];
    for (const { text: content, mark, score, weight } of segments) {
      if (mark != null) {
        if (!names.includes(mark)) names.push(mark);
        const element = make("mark", `mark-${names.indexOf(mark) % NUM_COLORS}`, content);
        element.append(make("small", "", score == null ? mark : `${mark} ${score.toFixed(2)}`));
        text.append(element);
      } else if (weight !== undefined) {
        const element = make("span", "word", content);
        const color = weight >= 0 ? "--for" : "--against";
        const strength = Math.min(Math.sqrt(Math.abs(weight)), 1) * 0.75;
        element.style.background = `rgba(var(${color}), ${strength})`;
        element.title = (weight >= 0 ? "+" : "") + weight.toFixed(3);
        text.append(element);
      } else {
        text.append(content); // a string becomes a text node
      }
    }
    part.append(text);
    return part;
  },
  value({ title, value }) {
    const part = makePart(title);
    part.append(make("div", "value", value.toPrecision(4)));
    return part;
  },
};

function readFields() {
  const areas = [...byId("fields").querySelectorAll("textarea")];
  return Object.fromEntries(areas.map((area) => [area.name, area.value]));
}

async function ask() {
  clearTimeout(timer);
  const number = ++latest;
  const model = chosen;
  byId("ask").disabled = true;
  byId("time").textContent = lastTime === Infinity ? "The first answer prepares the model …" : "Answering …";
  try {
    const weighs = models[model].weighs_words && byId("weigh").checked;
    const answer = await request("/answer", { model, inputs: readFields(), weigh_words: weighs });
    if (number !== latest) return;
    lastTime = answer.milliseconds;
    show(...answer.parts.map((part) => renderers[part.kind](part)));
    byId("time").textContent = `Answered in ${answer.milliseconds} ms.`;
  } catch (error) {
    if (number !== latest) return;
    byId("time").textContent = "";
    const part = makePart("", "error");
    part.append(error instanceof TypeError ? "The server does not answer. Is bin/demo running?" : error.message);
    part.setAttribute("role", "alert");
    show(part);
  } finally {
    if (number === latest) byId("ask").disabled = false;
  }
}

function makeField({ name, label, examples, rows }) {
  const field = make("div", "field");
  const caption = make("label", "", label);
  const area = make("textarea");
  area.name = name;
  area.rows = rows;
  area.value = typed.get(`${chosen} ${name}`) ?? examples[0];
  area.spellcheck = false;
  area.addEventListener("input", () => {
    typed.set(`${chosen} ${name}`, area.value);
    clearTimeout(timer);
    if (lastTime < SLOW) timer = setTimeout(ask, PAUSE);
  });
  caption.append(area);
  field.append(caption);
  for (const example of examples.length > 1 ? examples : []) {
    const button = make("button", "example", example);
    button.type = "button";
    button.addEventListener("click", () => {
      area.value = example;
      typed.set(`${chosen} ${name}`, example);
      ask();
    });
    field.append(button);
  }
  return field;
}

function choose(number) {
  clearTimeout(timer);
  latest++;
  chosen = number;
  lastTime = Infinity;
  const { title, about, fields, weighs_words: weighs } = models[number];
  for (const [place, tab] of [...byId("models").children].entries()) {
    tab.setAttribute("aria-selected", String(place === number));
  }
  byId("title").textContent = title;
  byId("about").textContent = about;
  byId("fields").replaceChildren(...fields.map(makeField));
  byId("weigh-choice").hidden = !weighs;
  byId("ask").disabled = false;
  byId("time").textContent = "";
  show();
}

async function start() {
  ({ models } = await request("/models"));
  byId("models").append(
    ...models.map(({ name, tab: action }, number) => {
      const tab = make("button", "", action);
      tab.append(make("small", "", name));
      tab.type = "button";
      tab.setAttribute("role", "tab");
      tab.addEventListener("click", () => choose(number));
      return tab;
    }),
  );
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  byId("weigh").addEventListener("change", ask);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  choose(0);
}

start().catch((error) => {
  byId("title").textContent = "";
  show(makePart(error.message, "error"));
});
