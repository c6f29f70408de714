//! Files that are wrong, and exactly what is said about them.

use proptest::prelude::*;

use super::*;

/// `### title`, the file, `---`, the message; a blank line between cases.
const CASES: &str = include_str!("bad.txt");

fn message(text: &str) -> Option<String> {
    parse(text, Path::new("gleaner.toml"), &no_env)
        .err()
        .map(|errors| errors.to_string())
}

#[test]
fn a_bad_file_gets_exactly_this_message() {
    let cases: Vec<&str> = CASES.split("### ").skip(1).collect();
    assert!(cases.len() >= 100, "{} cases were read", cases.len());
    for case in cases {
        let (title, rest) = case.split_once('\n').expect("a title");
        let (text, expected) = rest.split_once("---\n").expect("a message");
        let actual = message(text).unwrap_or_else(|| panic!("{title}: no error"));
        assert_eq!(actual.trim_end(), expected.trim_end(), "{title}");
        assert!(!actual.contains("hunter2"), "{title}: shows a secret");
    }
}

#[test]
fn what_pointer_and_rule_say_is_passed_on_with_the_place() {
    let text = "[source.s]\nurl = \"https://h.example/\"\nkey = \"/a~2\"\nrequire = { \"/a\" = \"strange\" }\n";
    let message = message(text).expect("both are wrong");
    let pointer = Pointer::parse("/a~2").expect_err("~2 is no escape");
    let rule = crate::contract::Rule::parse("strange").expect_err("that is no type");
    assert!(
        message.contains(&format!(
            "gleaner.toml:3:7: `key`: {pointer}; expected a JSON Pointer"
        )),
        "{message}"
    );
    assert!(
        message.contains(&format!(
            "gleaner.toml:4:20: the rule for \"/a\": {rule}; expected a rule"
        )),
        "{message}"
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_said() {
    let text =
        "[source.s]\nurl = \"https://h.example/\"\nkey = \"/id\"\nschema = \"no.schema.json\"\n";
    let message = message(text).expect("it is not there");
    let said = if cfg!(feature = "schema") {
        "no.schema.json: can't be read: No such file or directory (os error 2); expected the path of a JSON Schema"
    } else {
        "gleaner.toml:4:10: `schema`: this gleaner was built without JSON Schema; expected one that was built with it (`cargo build --release --features schema`), or rules in `require`"
    };
    assert!(message.contains(said), "{message}");
}

/// Lines that hold a secret, right or wrong.
const SECRETS: [&str; 11] = [
    "[upstream.u]\nbase = \"https://h.example/\"\nauth = { bearer = \"hunter2\" }\n",
    "[upstream.u]\nbase = \"https://h.example/\"\nauth = { basic = { user = \"u\", password = \"hunter2\" } }\n",
    "[upstream.u]\nbase = \"https://h.example/\"\nauth = { bearer = { value = \"hunter2\" } }\n",
    "[upstream.u]\nbase = \"https://gw:hunter2@h.example/\"\n",
    "[upstream.u]\nbase = \"https://h.example/\"\nproxy = \"http://gw:hunter2@h.example:1\"\n",
    "[upstream.u]\nbase = \"https://h.example/\"\npassword = \"hunter2\"\n",
    "[source.s]\nurl = \"https://gw:hunter2@h.example/\"\nkey = \"/id\"\n",
    "[upstream.u]\nbase = \"https://h.example/\"\nauth = { bearer = \"\"\"\nhunter2\n\"\"\" }\n",
    "[hook.h]\nscheme = \"github\"\nsecret = \"hunter2\"\n",
    "[hook.h]\nscheme = \"github\"\nsecret = [{ file = \"s\" }, \"hunter2\"]\nchallenge = { meta = { verify_token = \"hunter2\" } }\n",
    "[door]\nlisten = \"[::]:1\"\ntls = { cert = \"c\", key = \"hunter2\" }\n",
];

#[test]
fn no_slip_of_the_finger_shows_a_secret() {
    let mut wrong = 0;
    for text in SECRETS {
        for at in 0..text.len() {
            let (start, end) = text.split_at(at);
            let slips = [
                format!("{start}{}", &end[1..]),
                format!("{start}\"{end}"),
                format!("{start}={end}"),
                format!("{start}{{{end}"),
                format!("{start}}}{end}"),
                format!("{start}\n{end}"),
                start.to_owned(),
            ];
            for slip in slips {
                let Some(message) = message(&slip) else {
                    continue;
                };
                wrong += 1;
                assert!(
                    !message.contains("unter2") && !message.contains("hunter"),
                    "{slip}\n{message}"
                );
            }
        }
    }
    assert!(wrong > 1000, "{wrong} of the slips were errors");
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let message = message("[agent]\nid = 1\ncheckpoint = 2\n[upstream.u]\n[source.s]\nevery = 3\n")
        .expect("much is wrong");
    let lines: Vec<&str> = message
        .lines()
        .filter(|line| line.starts_with("gleaner.toml:"))
        .collect();
    assert_eq!(lines.len(), 6, "{message}");
}

#[test]
fn the_file_itself_may_be_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gleaner.toml");
    let said = |path: &Path| load(path, &no_env).expect_err("it is wrong").to_string();
    assert!(said(&path).starts_with(&format!("{}: can't be read: ", path.display())));
    std::fs::write(&path, b"[agent]\nid = \"\xff\"\n").unwrap();
    assert_eq!(
        said(&path),
        format!("{}: line 2 is not UTF-8", path.display())
    );
    std::fs::write(&path, "#".repeat(MAX_LEN + 1)).unwrap();
    assert!(said(&path).contains("is longer than 1048576 bytes"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]a-z.=\"{}0-9\n ,'#é]{0,80}") {
        let _ = parsed(&text);
    }

    #[test]
    fn no_change_to_a_good_file_makes_it_panic(at in 0..2000_usize, len in 0..6_usize, with in "[\\[\\]a-z.=\"{}0-9\n/]{0,3}") {
        let mut text = include_str!("../../../examples/gleaner.toml").to_owned();
        let at = at % text.len();
        text.replace_range(at..(at + len).min(text.len()), &with);
        let _ = parsed(&text);
    }
}
