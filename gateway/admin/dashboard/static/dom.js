// Elements, and their update in place. Text is always text: nothing here reads HTML, so a name may
// hold any characters. An update keeps the elements that stay, with their focus and their hover.

const SVG = "http://www.w3.org/2000/svg";
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
  element.listeners = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") element.key = String(value);
    else if (name.startsWith("on")) listen(element, name, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function listen(element, name, listener) {
  element.listeners[name] = listener;
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
  const staying = new Set([...wanted.childNodes].map((child) => child.key));
  const kept = new Map();
  for (const child of [...shown.childNodes]) {
    if (child.key && !staying.has(child.key)) child.remove(); // first: the others need not move
    else if (child.key) kept.set(child.key, child);
  }
  let at = shown.firstChild;
  for (const child of [...wanted.childNodes]) {
    const old = child.key ? kept.get(child.key) : at && !at.key ? at : null;
    if (old && alike(old, child)) {
      if (old === at) at = at.nextSibling;
      else shown.insertBefore(old, at);
      renew(old, child);
    } else {
      shown.insertBefore(child, at);
      if (old && old === at) {
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

function alike(old, wanted) {
  return old.nodeName === wanted.nodeName && old.key === wanted.key;
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
  for (const name of Object.keys(old.listeners ?? {})) {
    if (!(name in (wanted.listeners ?? {}))) old[name] = null;
  }
  for (const [name, listener] of Object.entries(wanted.listeners ?? {})) old[name] = listener;
  old.listeners = wanted.listeners;
}

/** Tells screen readers. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
