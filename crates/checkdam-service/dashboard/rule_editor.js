// One rule: what it says in words, and an editor that shows the effect of an
// edit before it is made.

import { Unreachable, get, post, readRule, removeRule, writeRule } from "./api.js";
import { announce, confirm, h, replaceContent } from "./dom.js";
import { previewPanel } from "./rule_preview.js";
import { ruleForm } from "./rule_form.js";
import { locateError, toLines, withoutRowFields } from "./rule_json.js";
import { clearUnsaved, trackUnsaved } from "./unsaved_changes.js";
import { count, dateTime, duration, limitInWords, whenInWords } from "./format.js";

const TYPING_MS = 400;
const NEW = { name: "", key: "user:{user}", limits: ["10/s burst 50"] };

export const title = (name) => name || "New rule";

function summary(rule) {
  return h("section", { class: "panel stack", id: "summary" },
    h("p", null, rule.description ?? ""),
    h("dl", null, h("dt", null, "Matches"), h("dd", null, whenInWords(rule.when)), h("dt", null, "Counts by"), h("dd", null, h("code", null, rule.key)),
      h("dt", null, "Allows"), h("dd", null, rule.limits.map((limit) => h("div", null, limitInWords(limit)))),
      h("dt", null, "Mode"), h("dd", null, h("span", { class: `tag ${rule.mode ?? ""}` }, rule.mode ?? "enforce")),
      rule.updated_at ? [h("dt", null, "Changed"), h("dd", null, `${dateTime(rule.updated_at)}, version ${count(rule.version)}`)] : null));
}

const withoutIt = ({ requests, seconds, newly_allowed }) => (requests
  ? `Of the last ${count(requests)} requests (${duration(seconds)}), ${count(newly_allowed)} that were denied would have been allowed.` : "");

class Editor {
  constructor(body, name) {
    this.body = body;
    this.name = name;
    this.is_new = !name;
    this.saved = NEW;
    this.etag = null;
    this.form = null;
    this.is_closed = false;
    this.status = h("div", { role: "status" });
    this.shown = h("div");
    this.seen = h("div");
    this.body.append(this.shown);
  }

  async begin() {
    if (!this.is_new) {
      const { data, etag } = await readRule(this.name);
      this.setSaved(data, etag);
      if (data.mode === "shadow") this.showShadow().catch(() => {});
    }
    const { rules } = await get("status");
    if (!this.is_closed) this.open(rules);
  }

  open({ source, from }) {
    const is_fixed = source === "file";
    this.form = ruleForm(withoutRowFields(this.saved), () => this.typed());
    if (!is_fixed) this.markSaved();
    this.body.append(h("form", { class: "panel stack", id: "editor", novalidate: true, submit: (event) => { event.preventDefault(); this.save(); } },
      h("h2", null, this.is_new ? "Definition" : "Edit"),
      is_fixed ? h("p", { class: "message warn" }, `The rules come from ${from}: edit that file. Here you can preview an edit, but not save it.`) : null,
      this.form.node, this.status,
      h("div", { class: "row" },
        h("button", { type: "button", id: "preview-edit", click: () => this.preview() }, "Preview the effect"),
        h("button", { type: "submit", class: "main", id: "save", disabled: is_fixed }, "Save"),
        h("button", { type: "button", class: "harm", hidden: this.is_new, disabled: is_fixed, click: () => this.remove() }, "Remove…"))), this.seen);
  }

  // Marks the form's current content as saved.
  markSaved() {
    const written = () => JSON.stringify(this.form.read());
    const settled = written();
    trackUnsaved(() => written() !== settled);
  }

  close() {
    this.is_closed = true;
    clearUnsaved();
    clearTimeout(this.timer);
  }

  setSaved(rule, etag) {
    this.etag = etag;
    this.saved = rule;
    replaceContent(this.shown, summary(rule));
  }

  async showShadow() {
    const { seen, would_deny, since } = await get(`rules/${encodeURIComponent(this.name)}/effect`);
    this.shown.firstChild.append(h("p", { class: "message" },
      `In shadow mode it would have denied ${count(would_deny)} of ${count(seen)} requests on this node since ${dateTime(since * 1000)}.`));
  }

  showMessage(kind, ...parts) {
    replaceContent(this.status, parts.length ? h("div", { class: `message ${kind}` }, ...parts) : null);
  }

  // Shows an error at its field, or above the buttons.
  showError(error, fields) {
    if (error instanceof Unreachable) {
      this.showMessage("bad", error.message);
      return;
    }
    if (error.status === undefined) throw error;
    const { name, text } = locateError(error.message, fields);
    if (!this.form.showError(name ?? error.field, text)) this.showMessage("bad", text);
  }

  typed() {
    clearTimeout(this.timer);
    // The preview no longer matches the form.
    replaceContent(this.seen, null);
    this.timer = setTimeout(() => this.validated().catch(() => {}), TYPING_MS);
  }

  // Returns the rule in the form if the server finds it valid.
  async validated() {
    this.form.clear();
    this.showMessage("");
    const rule = this.form.read();
    if (rule === null) return null;
    const { text, fields } = toLines(rule);
    try {
      await post("rules/validate", text);
    } catch (error) {
      // A renamed rule conflicts with the rule of its old name: that error is
      // ignored.
      const is_renamed = !this.is_new && rule.name !== this.name && error.message.includes(`the rule ${JSON.stringify(this.name)}`);
      if (!is_renamed) {
        this.showError(error, fields);
        return null;
      }
    }
    return { rule, text, fields };
  }

  // Like the validation while typing, for an explicit action: moves the focus to the
  // first invalid field.
  async ready() {
    clearTimeout(this.timer);
    const edit = await this.validated();
    if (!edit) this.body.querySelector("[aria-invalid]")?.focus();
    return edit;
  }

  async preview() {
    const edit = await this.ready();
    if (!edit) return;
    try {
      const effect = await post("rules/preview", { name: this.is_new ? null : this.name, rule: edit.rule });
      replaceContent(this.seen, previewPanel(effect));
      this.seen.querySelector("h2").focus();
    } catch (error) {
      this.showError(error, edit.fields);
    }
  }

  async save() {
    const edit = await this.ready();
    if (!edit) return;
    try {
      const { data, etag } = await writeRule(this.is_new ? edit.rule.name : this.name, edit.text, this.etag);
      clearUnsaved();
      if (data.name !== this.name) {
        location.hash = `#/rules/${encodeURIComponent(data.name)}`;
        return;
      }
      this.setSaved(data, etag);
      this.form.write(withoutRowFields(data));
      this.markSaved();
      replaceContent(this.seen, null);
      this.showMessage("", h("strong", { class: "good" }, "Saved."), " It is active on this node, and within a second on every other.");
    } catch (error) {
      if (error.status === 412) await this.showConflict(error);
      else this.showError(error, edit.fields);
    }
  }

  // Edit conflict: shows the stored rule and lets the user choose.
  async showConflict(error) {
    if (this.is_new) {
      this.form.showError("name", error.message);
      return;
    }
    try {
      const { data, etag } = await readRule(this.name);
      this.showMessage("warn", h("p", null, h("strong", null, "Someone else changed this rule meanwhile."), " Nothing was saved. The stored rule:"),
        h("pre", { tabindex: "0" }, JSON.stringify(withoutRowFields(data), null, 2)),
        h("div", { class: "row" },
          h("button", { type: "button", click: () => { this.setSaved(data, etag); this.form.write(withoutRowFields(data)); this.markSaved(); this.showMessage(""); } }, "Use the stored rule"),
          h("button", { type: "button", click: () => { this.setSaved(data, etag); this.showMessage("", "Your version is kept: save again to replace the stored one."); } }, "Keep mine")));
    } catch (gone) {
      if (gone.status !== 404) throw gone;
      this.showMessage("warn", "Someone else removed this rule meanwhile. Nothing was saved.");
    }
  }

  async remove() {
    const effect = await post("rules/preview", { name: this.name, rule: null }).then(withoutIt, () => "");
    const is_meant = await confirm(`Remove the rule ${this.name}?`, h("div", { class: "stack" },
      h("p", null, "It stops applying on every node within a second."), h("p", null, effect)), "Remove");
    if (!is_meant) return;
    try {
      await removeRule(this.name, this.etag);
      clearUnsaved();
      announce(`The rule ${this.name} is removed.`);
      location.hash = "#/rules";
    } catch (error) {
      if (error.status === 412) await this.showConflict(error);
      else this.showError(error, []);
    }
  }
}

export function show({ body, actions, heading, item }) {
  const editor = new Editor(body, item);
  actions.append(h("a", { href: "#/rules" }, "All rules"));
  editor.begin().catch((error) => {
    if (error.name === "AbortError") return;
    if (error.status === 404) heading.textContent = `There is no rule ${item}`;
    replaceContent(editor.shown, h("p", { class: "message bad" }, error.message));
  });
  return () => editor.close();
}
