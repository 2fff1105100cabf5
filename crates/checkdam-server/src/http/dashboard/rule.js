// One rule: what it says in words, and an editor that shows the effect of an
// edit before it is made.

import { Unreachable, get, post, readRule, removeRule, writeRule } from "./api.js";
import { confirm, h, say, swap } from "./dom.js";
import { previewPanel } from "./preview.js";
import { ruleForm } from "./rule_form.js";
import { bare, blamed, written } from "./rule_text.js";
import { count, limitInWords, moment, span, whenInWords } from "./words.js";

const TYPING_MS = 400;
const NEW = { name: "", key: "user:{user}", limits: ["10/s burst 50"] };

export const title = (name) => name || "A new rule";

function summary(rule) {
  return h("section", { class: "panel stack", id: "summary" },
    h("p", null, rule.description ?? ""),
    h("dl", null, h("dt", null, "Concerns"), h("dd", null, whenInWords(rule.when)), h("dt", null, "Counts by"), h("dd", null, h("code", null, rule.key)),
      h("dt", null, "Allows"), h("dd", null, rule.limits.map((limit) => h("div", null, limitInWords(limit)))),
      h("dt", null, "Mode"), h("dd", null, h("span", { class: `tag ${rule.mode ?? ""}` }, rule.mode ?? "enforce")),
      rule.updated_at ? [h("dt", null, "Changed"), h("dd", null, `${moment(rule.updated_at)}, version ${count(rule.version)}`)] : null));
}

const withoutIt = ({ requests, seconds, newly_allowed }) => (requests
  ? `Of the last ${count(requests)} requests (${span(seconds)}), ${count(newly_allowed)} that were limited would have passed.` : "");

export function show({ body, actions, heading, item }) {
  const is_new = !item;
  const told = h("div", { role: "status" });
  const shown = h("div");
  const seen = h("div");
  const state = { etag: null, saved: NEW, form: null, is_closed: false };
  let timer;

  const tell = (kind, ...parts) => swap(told, parts.length ? h("div", { class: `told ${kind}` }, ...parts) : null);

  // Shows an error at its field, or above the form.
  function complain(error, fields) {
    if (error instanceof Unreachable) {
      tell("bad", error.message);
      return;
    }
    if (error.status === undefined) throw error;
    const { name, text } = blamed(error.message, fields);
    if (!state.form.blame(name ?? error.field, text)) tell("bad", text);
  }

  // The rule of the form if the server finds it valid.
  async function judged() {
    state.form.clear();
    tell("");
    const rule = state.form.read();
    if (rule === null) return null;
    const { text, fields } = written(rule);
    try {
      await post("rules/validate", text);
    } catch (error) {
      // A rule that gets another name is judged beside its old self.
      const is_renamed = !is_new && rule.name !== item && error.message.includes(`the rule ${JSON.stringify(item)}`);
      if (!is_renamed) {
        complain(error, fields);
        return null;
      }
    }
    return { rule, text, fields };
  }

  const typed = () => {
    clearTimeout(timer);
    timer = setTimeout(() => judged().catch(() => {}), TYPING_MS);
  };

  // The same when it is asked for: what is wrong gets the focus.
  async function ready() {
    clearTimeout(timer);
    const edit = await judged();
    if (!edit) body.querySelector("[aria-invalid]")?.focus();
    return edit;
  }

  async function preview() {
    const edit = await ready();
    if (!edit) return;
    try {
      const effect = await post("rules/preview", { name: is_new ? null : item, rule: edit.rule });
      swap(seen, previewPanel(effect));
      seen.querySelector("h2").focus();
    } catch (error) {
      complain(error, edit.fields);
    }
  }

  async function save() {
    const edit = await ready();
    if (!edit) return;
    try {
      const { data, etag } = await writeRule(is_new ? edit.rule.name : item, edit.text, state.etag);
      if (data.name !== item) {
        location.hash = `#/rules/${encodeURIComponent(data.name)}`;
        return;
      }
      take(data, etag);
      state.form.write(bare(data));
      tell("", h("strong", { class: "good" }, "Saved."), " It is in force on this node, and within a second on every other.");
    } catch (error) {
      if (error.status === 412) await disagree(error);
      else complain(error, edit.fields);
    }
  }

  // Somebody else was faster: shows theirs, and lets the user choose.
  async function disagree(error) {
    if (is_new) {
      state.form.blame("name", error.message);
      return;
    }
    try {
      const { data, etag } = await readRule(item);
      tell("warn", h("p", null, h("strong", null, "Somebody else has changed this rule meanwhile."), " Nothing was saved. Theirs:"),
        h("pre", { tabindex: "0" }, JSON.stringify(bare(data), null, 2)),
        h("div", { class: "row" },
          h("button", { type: "button", click: () => { take(data, etag); state.form.write(bare(data)); tell(""); } }, "Take theirs"),
          h("button", { type: "button", click: () => { take(data, etag); tell("", "Yours is kept: save again to replace theirs."); } }, "Keep mine")));
    } catch (gone) {
      if (gone.status !== 404) throw gone;
      tell("warn", "Somebody else has removed this rule meanwhile. Nothing was saved.");
    }
  }

  async function remove() {
    const told_effect = await post("rules/preview", { name: item, rule: null }).then(withoutIt, () => "");
    const is_meant = await confirm(`Remove the rule ${item}?`, h("div", { class: "stack" },
      h("p", null, "Requests are no longer limited by it, at once and on every node."), h("p", null, told_effect)), "Remove");
    if (!is_meant) return;
    try {
      await removeRule(item, state.etag);
      say(`The rule ${item} is removed.`);
      location.hash = "#/rules";
    } catch (error) {
      if (error.status === 412) await disagree(error);
      else complain(error, []);
    }
  }

  function take(rule, etag) {
    state.etag = etag;
    state.saved = rule;
    swap(shown, summary(rule));
  }

  async function effect() {
    const { seen: asked, would_deny, since } = await get(`rules/${encodeURIComponent(item)}/effect`);
    shown.firstChild.append(h("p", { class: "told" }, `In shadow: it would have denied ${count(would_deny)} of ${count(asked)} requests on this node since ${moment(since * 1000)}.`));
  }

  const buttons = {
    preview: h("button", { type: "button", id: "preview-edit", click: preview }, "Preview the effect"),
    save: h("button", { type: "submit", class: "main", id: "save" }, "Save"),
    remove: h("button", { type: "button", class: "harm", click: remove, hidden: is_new }, "Remove…"),
  };

  async function begin() {
    if (!is_new) {
      const { data, etag } = await readRule(item);
      take(data, etag);
      if (data.mode === "shadow") effect().catch(() => {});
    }
    const { rules } = await get("status");
    if (state.is_closed) return;
    state.form = ruleForm(bare(state.saved), typed);
    const is_fixed = rules.source === "file";
    buttons.save.disabled = buttons.remove.disabled = is_fixed;
    body.append(h("form", { class: "panel stack", id: "editor", novalidate: true, submit: (event) => { event.preventDefault(); save(); } },
      h("h2", null, is_new ? "What it says" : "Edit"),
      is_fixed ? h("p", { class: "told warn" }, `The rules come from ${rules.from}: edit that file. Here an edit can be tried, not saved.`) : null,
      state.form.node, told, h("div", { class: "row" }, buttons.preview, buttons.save, buttons.remove)), seen);
  }

  actions.append(h("a", { href: "#/rules" }, "All rules"));
  body.append(shown);
  begin().catch((error) => {
    if (error.name === "AbortError") return;
    heading.textContent = error.status === 404 ? `There is no rule ${item}` : heading.textContent;
    swap(shown, h("p", { class: "told bad" }, error.message));
  });
  return () => {
    state.is_closed = true;
    clearTimeout(timer);
  };
}
