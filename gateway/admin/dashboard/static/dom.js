// Elements, and their update in place. Text is always text: nothing here reads HTML, so a name may
// hold any characters. An update keeps the elements that stay, with their focus and their hover.

const SVG = "http://www.w3.org/2000/svg";
// No names: a form has its fields as properties, by their ids.
const KEY = Symbol("key");
const LISTENERS = Symbol("listeners");
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "open"]);

/** An HTML element. `props`: attributes, `on...` listeners, `key` for its place among siblings. */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** An SVG element. */
export function s(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  element[LISTENERS] = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") element[KEY] = String(value);
    else if (name.startsWith("on")) listen(element, name, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function listen(element, name, listener) {
  element[LISTENERS][name] = listener;
  element[name] = listener;
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** A name that may be long: a line ends behind one of its separators, never inside a word
 * or before the number at its end. */
export function named(text) {
  return text.split(/(?<=[._\/:-])(?!\d+$)/).flatMap((part, at) => (at === 0 ? [part] : [h("wbr"), part]));
}

/** A field of a form with its label; `id`: of the field. */
export function labelled(id, label, field) {
  return h("p", { key: id }, h("label", { for: id }, label), field);
}

/** Makes the children of `shown` those of `wanted`. */
export function update(shown, wanted) {
  const staying = new Set([...wanted.childNodes].map((child) => child[KEY]));
  const kept = new Map();
  for (const child of [...shown.childNodes]) {
    if (child[KEY] && !staying.has(child[KEY])) child.remove(); // first: the others need not move
    else if (child[KEY]) kept.set(child[KEY], child);
  }
  let at = shown.firstChild;
  const coming = [...wanted.childNodes];
  while (coming.length > 0) {
    const child = coming.shift();
    // What came before it and is gone, as a warning that is over, does not take its place.
    while (at && !at[KEY] && !child[KEY] && !alike(at, child) && !awaited(at, coming) && awaited(child, following(at))) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const old = child[KEY] ? kept.get(child[KEY]) : at && !at[KEY] ? at : null;
    if (old && alike(old, child)) {
      if (old === at) at = at.nextSibling;
      else shown.insertBefore(old, at);
      renew(old, child);
    } else {
      shown.insertBefore(child, at);
      if (old && old === at && !awaited(old, coming)) {
        at = at.nextSibling;
        old.remove();
      }
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Whether the element has its like, by tag alone, among others. */
function awaited(element, others) {
  return others.some((it) => !it[KEY] && alike(it, element));
}

function following(element) {
  const found = [];
  for (let it = element.nextSibling; it; it = it.nextSibling) found.push(it);
  return found;
}

function alike(old, wanted) {
  return old.nodeName === wanted.nodeName && old[KEY] === wanted[KEY];
}

function renew(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  renewProperties(old, wanted);
  update(old, wanted);
}

function renewProperties(old, wanted) {
  for (const name of PROPERTIES) {
    if (!(name in wanted) || old[name] === wanted[name]) continue;
    const typing = name === "value" && old === document.activeElement;
    if (!typing) old[name] = wanted[name];
  }
  for (const name of Object.keys(old[LISTENERS] ?? {})) {
    if (!(name in (wanted[LISTENERS] ?? {}))) old[name] = null;
  }
  for (const [name, listener] of Object.entries(wanted[LISTENERS] ?? {})) old[name] = listener;
  old[LISTENERS] = wanted[LISTENERS];
}

/** Tells screen readers. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
