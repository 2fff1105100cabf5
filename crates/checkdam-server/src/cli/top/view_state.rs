//! State of the view (query, search, pause, scroll position), and the key bindings
//! that change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::server_snapshot::{ServerSnapshot, Subject, TopOf, TopQuery, TopWindow};

#[derive(Debug)]
pub(super) struct ViewState {
    pub(super) query: TopQuery,
    /// Only subjects that contain this.
    pub(super) search: String,
    /// What is being typed.
    pub(super) prompt: Option<(Prompt, String)>,
    pub(super) is_paused: bool,
    pub(super) is_help: bool,
    /// How many of the list are above the screen.
    pub(super) above: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    Rule,
    Search,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Draw,
    Ask,
    Quit,
}

impl ViewState {
    pub(super) const fn new(query: TopQuery) -> Self {
        Self { query, search: String::new(), prompt: None, is_paused: false, is_help: false, above: 0 }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyAction::Quit;
        }
        if let Some((prompt, text)) = self.prompt.take() {
            return self.edit_prompt(prompt, text, key.code);
        }
        if self.is_help {
            self.is_help = false;
            return KeyAction::Draw;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char('m') => self.query.window = TopWindow::Minute,
            KeyCode::Char('h') => self.query.window = TopWindow::Hour,
            KeyCode::Tab | KeyCode::BackTab => {
                self.query.kind = match self.query.kind {
                    TopOf::Limited => TopOf::Allowed,
                    TopOf::Allowed => TopOf::Limited,
                };
            }
            other => return self.press_local(other),
        }
        self.above = 0;
        KeyAction::Ask
    }

    /// Keys that do not change the query.
    fn press_local(&mut self, code: KeyCode) -> KeyAction {
        match code {
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { KeyAction::Draw } else { KeyAction::Ask };
            }
            KeyCode::Char('r') => self.prompt = Some((Prompt::Rule, self.query.rule.clone().unwrap_or_default())),
            KeyCode::Char('/') => self.prompt = Some((Prompt::Search, self.search.clone())),
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Down | KeyCode::Char('j') => self.above = self.above.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above.saturating_sub(1),
            KeyCode::PageDown => self.above = self.above.saturating_add(10),
            KeyCode::PageUp => self.above = self.above.saturating_sub(10),
            KeyCode::Home => self.above = 0,
            _ => {}
        }
        KeyAction::Draw
    }

    fn edit_prompt(&mut self, prompt: Prompt, mut text: String, code: KeyCode) -> KeyAction {
        match code {
            KeyCode::Esc => return KeyAction::Draw,
            KeyCode::Enter => {
                self.above = 0;
                match prompt {
                    Prompt::Search => self.search = text,
                    Prompt::Rule => {
                        self.query.rule = Some(text).filter(|rule| !rule.is_empty());
                        return KeyAction::Ask;
                    }
                }
                return KeyAction::Draw;
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(character) => text.push(character),
            _ => {}
        }
        self.prompt = Some((prompt, text));
        KeyAction::Draw
    }

    /// Those of the list that are searched for, with their place in it.
    pub(super) fn matching<'a>(&self, snapshot: &'a ServerSnapshot) -> Vec<(usize, &'a Subject)> {
        let search = self.search.to_lowercase();
        let subjects = snapshot.top.subjects.iter().enumerate().map(|(place, subject)| (place + 1, subject));
        subjects.filter(|(_, subject)| subject.subject.to_lowercase().contains(&search)).collect()
    }
}
