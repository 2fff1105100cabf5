// Tracks unsaved edits: leaving the page asks for confirmation.

const nothing = () => false;
let check = nothing;

// From now on `is_unsaved()` tells whether there are unsaved edits.
export function trackUnsaved(is_unsaved) {
  check = is_unsaved;
}

export function clearUnsaved() {
  check = nothing;
}

export const isUnsaved = () => check();

addEventListener("beforeunload", (event) => { if (check()) event.preventDefault(); });
