// Buttons that copy text.
import { el } from "./marks.js";

/** A button that copies what `text()` gives, and says so. */
export function copyButton(name, title, text) {
  const button = el("button", { type: "button", class: "copy", title, onclick: press }, name);
  const told = el("span", { class: "spoken", role: "status" });
  let later = 0;
  async function press() {
    const done = await copy(text());
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

async function copy(text) {
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
  document.querySelector(".framenest").append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
