// The menu of what can be taken out of the page, and its buttons that copy text.
import { el } from "./marks.js";

/** A menu under a button; Escape and a click elsewhere close it. */
export function menu(name, ...items) {
  const list = el("div", { class: "panel", role: "group", "aria-label": name, tabindex: "-1" }, items);
  const root = el(
    "details",
    {
      class: "menu",
      ontoggle: () => root.open && !root.contains(document.activeElement) && list.focus(),
      onfocusout: (event) => root.contains(event.relatedTarget) || root.removeAttribute("open"),
      onkeydown: (event) => {
        if (event.key !== "Escape" || !root.open) return;
        root.open = false;
        root.firstChild.focus();
      },
    },
    el("summary", {}, name),
    list,
  );
  return root;
}

/** A button that copies what `text()` gives, and says so. */
export function copyButton(name, title, text) {
  const button = el("button", { type: "button", title, onclick: press }, name);
  const told = el("span", { class: "spoken", role: "status" });
  let later = 0;
  async function press() {
    const done = await copy(text(), button);
    button.textContent = done ? "Copied" : "Not allowed here";
    told.textContent = done ? "Copied" : "The browser does not allow it";
    clearTimeout(later);
    later = setTimeout(() => {
      button.textContent = name;
      told.textContent = "";
    }, 2000);
  }
  return [button, told];
}

async function copy(text, button) {
  // Browsers have the clipboard for pages on https and on this machine alone; the old way works on all.
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }
  const area = el("textarea", { readonly: true, class: "spoken" });
  area.value = text;
  button.after(area); // inside the menu, which closes when the focus leaves it
  area.select();
  const done = document.execCommand("copy");
  button.focus();
  area.remove();
  return done;
}
