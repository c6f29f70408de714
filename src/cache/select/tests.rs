use super::*;
use crate::cache::entry::Body;
use crate::cache::freshness::Times;
use crate::upstream::conditional::Variant;

fn field(name: &str, value: &str) -> Field {
    Field {
        name: name.into(),
        value: value.into(),
    }
}

fn seal() -> Seal {
    Seal::new(&[7; 32])
}

#[test]
fn the_layout_of_a_list_does_not_select_and_its_members_do() {
    let same = |a: &[Field], b: &[Field]| sealed(a, &seal()) == sealed(b, &seal());
    assert!(same(
        &[field("a", "1, 2")],
        &[field("a", "1"), field("a", "2")]
    ));
    assert!(same(&[field("a", "1,2")], &[field("a", " 1 ,  2")]));
    assert!(!same(&[field("a", "1, 2")], &[field("a", "2, 1")]));
    assert!(!same(&[field("a", "")], &[]));
}

#[test]
fn a_token_is_in_neither_view_nor_variant() {
    let token = field("authorization", "Bearer hunter2");
    let shown = format!("{:?}", sealed(std::slice::from_ref(&token), &seal()));
    let first = view(Some("plant-7"), std::slice::from_ref(&token), &seal());
    assert!(!shown.contains("hunter2") && !first.contains("hunter2"));
    let other = view(
        Some("plant-7"),
        &[field("authorization", "Bearer x")],
        &seal(),
    );
    let elsewhere = view(
        Some("plant-7"),
        std::slice::from_ref(&token),
        &Seal::new(&[8; 32]),
    );
    let nobody = view(Some("plant-7"), &[], &seal());
    assert!(first != other && first != elsewhere && first != nobody);
    assert_ne!(view(None, &[], &seal()), nobody);
    assert_eq!(first, view(Some("plant-7"), &[token], &seal()));
}

#[test]
fn of_several_the_latest_date_is_taken() {
    let kept = |date: &str, status| {
        let headers = Headers::new().with("date", date);
        Kept {
            variant: Variant::of(&headers, &[]),
            status,
            headers,
            times: Times {
                asked: Timestamp::UNIX_EPOCH,
                answered: Timestamp::UNIX_EPOCH,
            },
            body: Body {
                sha256: String::new(),
                length: 0,
            },
        }
    };
    let both = [
        kept("Mon, 30 Nov 2026 12:00:01 GMT", 201),
        kept("Mon, 30 Nov 2026 12:00:00 GMT", 202),
    ];
    assert_eq!(select(&both, &[]).unwrap().status, 201);
    assert_eq!(select(&[], &[]), None);
}
