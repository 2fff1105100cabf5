// Dialogs that add, edit and remove an override or a ban.

import { Unreachable, removeEntry, writeEntry } from "./api.js";
import { announce, confirm, h } from "./dom.js";
import { sentence } from "./format.js";

// The error message without line and column, which refer to text that the user never
// saw.
function errorText(error) {
  if (error instanceof Unreachable) return error.message;
  if (error.status === undefined) throw error;
  if (error.status === 412) return "Someone else has changed or created this entry. Nothing was saved: close this dialog and check the list.";
  return sentence(error.message.replace(/^line \d+, column \d+: /, "").replace(/^(override of|ban) ("(\\.|[^"\\])*"( for rule )?)+: /, ""));
}

// Opens the dialog for an entry: `nodes` are its fields, `read` returns their values.
// It stays open until the server has accepted the entry; resolves to whether it was
// saved. `version` is that of the edited entry.
export function openEntryDialog({ kind, title, note, nodes, read, version }) {
  return new Promise((resolve) => {
    const fault = h("p", { class: "fault", role: "alert" });
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
        fault.textContent = errorText(error);
      }
    }
    const dialog = h("dialog", { "aria-labelledby": "entry-title", cancel: (event) => { event.preventDefault(); close(false); } },
      h("form", { novalidate: true, submit }, h("h2", { id: "entry-title" }, title), nodes, fault, h("p", { class: "note" }, note),
        h("div", { class: "row" }, save, h("button", { type: "button", click: () => close(false) }, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Removes an entry after confirmation; `given` identifies it.
export async function confirmRemoval({ kind, title, text, verb, given, version }) {
  if (!await confirm(title, h("p", null, text), verb)) return false;
  try {
    await removeEntry(kind, given, version);
    announce("Removed. Other nodes follow within a second.");
  } catch (error) {
    // After a concurrent edit the list is shown as it is now.
    if (![404, 412].includes(error.status)) await confirm("It was not removed", h("p", null, errorText(error)), "Close");
  }
  return true;
}
