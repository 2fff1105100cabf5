use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, from_value, json};

use super::*;
use crate::cli::top::server_snapshot::TopQuery;
use crate::cli::top::server_snapshot::{TopOf, TopWindow};
use crate::cli::top::view_state::KeyAction;

fn snapshot() -> ServerSnapshot {
    let subject = |rule: &str, subject: &str, count: u64, too_high_by: u64| json!({"rule": rule, "subject": subject, "count": count, "too_high_by": too_high_by});
    let series = |last: u64| (0..60).map(|second| last * second / 59).collect::<Vec<u64>>();
    let node = |node: &str, is_self: bool| {
        json!({"node": node, "is_self": is_self, "version": "0.1.0", "uptime_s": 7_260, "rules_version": 3,
            "requests_per_s": 123.4, "limited_per_s": 5.0, "ready": is_self})
    };
    let top = json!({"kind": "limited", "window": "minute", "scope": "cluster", "nodes": 2, "total": 162,
        "missing_at_most": 3, "subjects": [subject("user-free", "user:42", 120, 3), subject("ban", "ip:198.51.100.7", 30, 0),
            subject("user-free", "user:\u{1b}[2J7", 12, 0)]});
    let status = json!({"version": "0.1.0", "node": "one:8080", "rules": {"count": 12, "error": null},
        "store": {"kind": "redis", "unknown": 0, "refused": 0, "not_asked": 0, "is_open": false},
        "audit": {"written": 150, "dropped": 0, "waiting": 12}});
    let total = json!({"allowed": series(118), "limited": series(5), "shadow": series(2)});
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        from_value(value).unwrap()
    }
    ServerSnapshot {
        top: read(top),
        traffic: read(json!({"total": total})),
        nodes: read(json!({"nodes": [node("one:8080", true), node("two:8080", false)], "hint": null})),
        status: read(status),
    }
}

fn view() -> ViewState {
    ViewState::new(TopQuery { kind: TopOf::Limited, window: TopWindow::Minute, rule: None })
}

fn drawn(view: &ViewState, shown: &RenderState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, shown)).unwrap();
    terminal.backend().to_string()
}

fn shown() -> RenderState {
    RenderState { snapshot: snapshot(), trouble: None, has_colour: true }
}

#[test]
fn the_whole_screen() {
    insta::assert_snapshot!(drawn(&view(), &shown(), 100, 28), @r#"
    "checkdam top  one:8080 0.1.0                                                                        "
    "┌ requests per second, last minute, this node ─────────────────────────────────────────────────────┐"
    "│     118 allowed                                        ▁▁▁▂▂▂▂▃▃▃▃▄▄▄▅▅▅▅▆▆▆▆▇▇▇█                │"
    "│                          ▁▁▁▁▂▂▂▂▃▃▃▄▄▄▄▅▅▅▅▆▆▆▇▇▇▇██████████████████████████████                │"
    "│       5 denied                                           ▁▁▁▁▁▁▁▁▁▁▁▁▄▄▄▄▄▄▄▄▄▄▄█                │"
    "│       2 in shadow                ▃▃▃▃▃▃▃▃▃▃▃▃▆▆▆▆▆▆▆▆▆▆▆▆████████████████████████                │"
    "└──────────────────────────────────────────────────────────────────────────────────────────────────┘"
    "┌ most denied in the last minute, 2 nodes: 162 in total; unlisted subjects: at most 3 each ────────┐"
    "│  #      COUNT −        RULE                             SUBJECT                                  │"
    "│  1        120 −3       user-free                        user:42                                  │"
    "│  2         30          ban                              ip:198.51.100.7                          │"
    "│  3         12          user-free                        user:�[2J7                               │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "│                                                                                                  │"
    "└──────────────────────────────────────────────────────────────────────────────────────────────────┘"
    " ok  store redis, 0 failed  ·  rules 12  ·  audit 150 written, 12 waiting, 0 dropped                "
    "┌ 2 nodes ─────────────────────────────────────────────────────────────────────────────────────────┐"
    "│ NODE                                     STATE    REQUESTS/S DENIED/S   RULES  UP        VERSION │"
    "│*one:8080                                 ready    123.4      5.0        3      2h 1m     0.1.0   │"
    "│ two:8080                                 unready  123.4      5.0        3      2h 1m     0.1.0   │"
    "└──────────────────────────────────────────────────────────────────────────────────────────────────┘"
    "q quit · tab denied/allowed · m minute · h hour · r rule · / search · p pause · ? help              "
    "#);
}

#[test]
fn trouble_is_shown_beside_what_was_last_known() {
    let mut shown = shown();
    shown.trouble = Some("cannot reach a server".to_owned());
    shown.snapshot.status.store.is_open = true;
    let text = drawn(&view(), &shown, 100, 28);
    assert!(text.contains("cannot reach a server") && text.contains("user:42"), "{text}");
    assert!(text.contains("warn  store redis, breaker open"), "{text}");
}

#[test]
fn any_size_can_be_drawn() {
    for (width, height) in [(1, 1), (3, 40), (20, 5), (40, 12), (300, 100)] {
        let mut view = view();
        view.is_help = true;
        drawn(&view, &shown(), width, height);
    }
}

#[test]
fn keys_choose_what_is_shown() {
    let mut view = view();
    let mut press = |code: KeyCode| {
        let pressed = view.press(KeyEvent::from(code));
        (pressed, drawn(&view, &shown(), 100, 28), view.query.clone())
    };
    assert_eq!(press(KeyCode::Tab).2.kind, TopOf::Allowed);
    let (pressed, _, query) = press(KeyCode::Char('h'));
    assert_eq!((pressed, query.window), (KeyAction::Ask, TopWindow::Hour));
    assert_eq!(press(KeyCode::Char('m')).2.window, TopWindow::Minute);
    assert!(press(KeyCode::Char('p')).1.contains("PAUSED"));
    assert!(!press(KeyCode::Char('p')).1.contains("PAUSED"));
    assert!(press(KeyCode::Char('?')).1.contains("Any key closes this."));
    assert!(!press(KeyCode::Char('q')).1.contains("Any key closes this."), "that key only closed it");
    press(KeyCode::Char('/'));
    for letter in "IP:".chars() {
        press(KeyCode::Char(letter));
    }
    let (_, text, _) = press(KeyCode::Enter);
    assert!(text.contains("ip:198.51.100.7") && !text.contains("user:42"), "{text}");
    press(KeyCode::Char('r'));
    press(KeyCode::Char('x'));
    assert_eq!(press(KeyCode::Esc).2.rule, None, "nothing was chosen");
    press(KeyCode::Char('r'));
    press(KeyCode::Char('x'));
    let (pressed, text, query) = press(KeyCode::Enter);
    assert_eq!((pressed, query.rule.as_deref()), (KeyAction::Ask, Some("x")));
    assert!(text.contains("rule x"), "{text}");
    for _ in 0..200 {
        press(KeyCode::Down);
    }
    assert!(press(KeyCode::Down).1.contains("ip:198.51.100.7"), "the last one stays");
    assert_eq!(press(KeyCode::Char('q')).0, KeyAction::Quit);
}
