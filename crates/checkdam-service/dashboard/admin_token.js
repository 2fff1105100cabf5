// The admin token: requested when the server responds with 401, kept for this tab only.

import { h } from "./dom.js";

const KEY = "checkdam-token";
let dialog_promise = null;

// What a header can carry: the browser would refuse to send anything else.
const CARRIED = /^[ -~]+$/;

// A token that cannot be sent in a header counts as none.
export function token() {
  const kept = sessionStorage.getItem(KEY) ?? "";
  return CARRIED.test(kept) ? kept : "";
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

// Asks for the token, once for all waiting requests. `used` is the rejected token: if
// it has been replaced meanwhile, no dialog opens.
export function askForToken(is_wrong, used) {
  if (token() !== used) return Promise.resolve();
  dialog_promise ??= new Promise((resolve) => {
    const input = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "token-fault" });
    const text = is_wrong && used ? "The server rejected that token." : "";
    const fault = h("p", { class: "fault", id: "token-fault", role: "alert" }, text);
    if (text) input.setAttribute("aria-invalid", "true");
    const dialog = h("dialog", { "aria-labelledby": "token-title", cancel: (event) => event.preventDefault() },
      h("form", {
        submit: (event) => {
          event.preventDefault();
          const given = input.value.trim();
          if (!CARRIED.test(given)) {
            fault.textContent = "That cannot be the token: it contains a character that is not allowed in a header.";
            input.setAttribute("aria-invalid", "true");
            input.focus();
            return;
          }
          sessionStorage.setItem(KEY, given);
          dialog_promise = null;
          dialog.close();
          dialog.remove();
          document.dispatchEvent(new Event("token"));
          resolve();
        },
      },
      h("h2", { id: "token-title" }, "Admin token required"),
      h("div", { class: "field" }, h("label", { for: "token" }, "Admin token"), input, fault),
      h("p", { class: "note" }, "Enter the value of --admin-token, or a token from [[admin_tokens]] in the server's checkdam.toml. It is kept until you close this tab."),
      h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Continue"))));
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
  return dialog_promise;
}
