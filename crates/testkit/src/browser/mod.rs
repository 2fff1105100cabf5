//! A real Chromium, driven by WebDriver: pages, clicks, keys, screenshots.

mod driver;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use self::driver::Driver;
use crate::wait::holds_within;

/// How long a page may take to show what is waited for. Chromium shares the machine with everything else that runs.
const PATIENCE: Duration = Duration::from_secs(15);

/// How the protocol calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Finds the first element of a selector that is visible and, if asked for, contains a text.
const FIND: &str = "const [selector, text] = arguments; \
    return [...document.querySelectorAll(selector)].find((one) => \
        one.getClientRects().length > 0 && (!text || (one.textContent + (one.value ?? '')).includes(text))) ?? null;";

/// A browser with one window and a profile of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    driver: Driver,
}

/// An element of the page that was shown when it was found.
#[derive(Debug)]
pub struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Browser {
    /// Starts Chromium without a screen, and installs it first if need be.
    #[must_use]
    pub fn start() -> Self {
        Self { driver: Driver::start() }
    }

    /// Opens an address.
    pub fn goto(&self, url: &str) {
        self.driver.post("/url", &json!({ "url": url }));
    }

    /// Waits for a visible element.
    pub fn find(&self, selector: &str) -> Element<'_> {
        self.find_with(selector, "")
    }

    /// Waits for a visible element that contains a text, also as what is typed in it.
    pub fn find_with(&self, selector: &str, text: &str) -> Element<'_> {
        let mut found = None;
        let is_found = holds_within(PATIENCE, || {
            found = self.run(FIND, &json!([selector, text]))[ELEMENT].as_str().map(str::to_owned);
            found.is_some()
        });
        assert!(is_found, "no {selector:?} with {text:?} is shown at {}:\n{}", self.address(), self.page_text());
        Element { browser: self, id: found.unwrap_or_default() }
    }

    /// Whether an element is shown now.
    pub fn shows(&self, selector: &str) -> bool {
        !self.run(FIND, &json!([selector, ""])).is_null()
    }

    /// Waits until a script returns something true.
    pub fn wait_for(&self, what: &str, script: &str) {
        let is_true = holds_within(PATIENCE, || self.run(script, &json!([])).as_bool() == Some(true));
        assert!(is_true, "{what} does not come about at {}:\n{}", self.address(), self.page_text());
    }

    /// What a script returns; its `arguments` are those given.
    pub fn run(&self, script: &str, arguments: &Value) -> Value {
        self.driver.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Presses keys where the focus is, such as `"\u{E004}"` for Tab.
    pub fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})));
        let source = json!({"type": "key", "id": "keyboard", "actions": actions.collect::<Vec<_>>()});
        self.driver.post("/actions", &json!({ "actions": [source] }));
    }

    /// Where it is.
    pub fn address(&self) -> String {
        self.run("return location.href", &json!([])).as_str().unwrap_or_default().to_owned()
    }

    /// All that can be read on the page.
    pub fn page_text(&self) -> String {
        self.run("return document.body.innerText", &json!([])).as_str().unwrap_or_default().to_owned()
    }

    /// Makes the page so wide and high, in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Pretends that its user prefers `light` or `dark`, and no motion.
    pub fn prefer(&self, colours: &str) {
        let features = json!([
            {"name": "prefers-color-scheme", "value": colours},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Writes what is shown to a PNG file.
    pub fn screenshot(&self, path: &Path) {
        let text = self.driver.get("/screenshot");
        let bytes = driver::base64(text.as_str().unwrap_or_default());
        assert!(bytes.starts_with(b"\x89PNG"), "the picture is no PNG");
        fs::write(path, bytes).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// What the console has said since this was last asked: errors and warnings, one a line.
    pub fn complaints(&self) -> Vec<String> {
        let entries = self.driver.post("/se/log", &json!({"type": "browser"}));
        let is_bad = |entry: &&Value| ["SEVERE", "WARNING"].iter().any(|level| entry["level"] == *level);
        let told = |entry: &Value| format!("{}: {}", text(&entry["source"]), text(&entry["message"]));
        entries.as_array().into_iter().flatten().filter(is_bad).map(told).collect()
    }

    fn devtools(&self, command: &str, parameters: &Value) {
        self.driver.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }
}

impl Element<'_> {
    /// Clicks in its middle, after scrolling there.
    pub fn click(&self) {
        self.post("/click", &json!({}));
    }

    /// Types behind what is there.
    pub fn write(&self, text: &str) {
        self.post("/value", &json!({ "text": text }));
    }

    /// Replaces what is there, key by key.
    pub fn replace(&self, text: &str) {
        self.post("/clear", &json!({}));
        self.write(text);
    }

    /// What can be read in it.
    pub fn text(&self) -> String {
        text(&self.browser.driver.get(&format!("/element/{}/text", self.id)))
    }

    /// One of its attributes; empty if it has none.
    pub fn attribute(&self, name: &str) -> String {
        text(&self.browser.driver.get(&format!("/element/{}/attribute/{name}", self.id)))
    }

    fn post(&self, path: &str, body: &Value) {
        self.browser.driver.post(&format!("/element/{}{path}", self.id), body);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
