// Whether something was edited and not saved: leaving it asks first.

const nothing = () => false;
let check = nothing;

// `is_unsaved` says so from now on.
export function trackUnsaved(is_unsaved) {
  check = is_unsaved;
}

export function clearUnsaved() {
  check = nothing;
}

export const isUnsaved = () => check();

addEventListener("beforeunload", (event) => { if (check()) event.preventDefault(); });
