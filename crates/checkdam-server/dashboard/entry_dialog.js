// Overrides and bans, one at a time: asked for in a dialog, and taken away.

import { Unreachable, removeEntry, writeEntry } from "./api.js";
import { announce, confirm, h } from "./dom.js";
import { sentence } from "./format.js";

// What is wrong, without the place in a text that only we know.
function errorText(error) {
  if (error instanceof Unreachable) return error.message;
  if (error.status === undefined) throw error;
  if (error.status === 412) return "It was changed or created concurrently. Nothing was saved: close this and check the list.";
  return sentence(error.message.replace(/^line \d+, column \d+: /, "").replace(/^(override of|ban) ("(\\.|[^"\\])*"( for rule )?)+: /, ""));
}

// Asks for an entry: `nodes` are its fields, `read` what they say. It stays open
// until the server has taken it; the promise says whether it has. `version` is that
// of the entry which is edited.
export function openEntryDialog({ kind, title, note, nodes, read, version }) {
  return new Promise((resolve) => {
    const told = h("p", { class: "fault", role: "alert" });
    const close = (is_saved) => { dialog.close(); dialog.remove(); resolve(is_saved); };
    const save = h("button", { type: "submit", class: "main", id: "save-entry" }, "Save");
    async function submit(event) {
      event.preventDefault();
      save.disabled = true;
      try {
        await writeEntry(kind, read(), version);
        announce("Saved. It is active.");
        close(true);
      } catch (error) {
        save.disabled = false;
        told.textContent = errorText(error);
      }
    }
    const dialog = h("dialog", { "aria-labelledby": "entry-title", cancel: (event) => { event.preventDefault(); close(false); } },
      h("form", { novalidate: true, submit }, h("h2", { id: "entry-title" }, title), nodes, told, h("p", { class: "note" }, note),
        h("div", { class: "row" }, save, h("button", { type: "button", click: () => close(false) }, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Takes an entry away, if that is meant; `given` says which it is.
export async function confirmRemoval({ kind, title, told, verb, given, version }) {
  if (!await confirm(title, h("p", null, told), verb)) return false;
  try {
    await removeEntry(kind, given, version);
    announce("It is gone, at once and on every node.");
  } catch (error) {
    // Who finds that somebody else was faster sees the list as it is now.
    if (![404, 412].includes(error.status)) await confirm("It is still there", h("p", null, errorText(error)), "Close");
  }
  return true;
}
