//! Texts that mean harm or nothing.

use proptest::prelude::*;

use super::*;

#[test]
fn a_bomb_of_aliases_or_of_depth_ends_with_an_error() {
    let mut bomb = "tenants:\n  - name: a\n    keys: &k0 [x]\n".to_owned();
    for level in 1..30 {
        let aliases = vec![format!("*k{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("  - name: t{level}\n    keys: &k{level} [{aliases}]\n"));
    }
    resolve(&bomb).unwrap_err();
    let same = format!(
        "tiers:\n  a: &a {{limits: {{tokens: 1/min}}}}\n{}",
        (0..20_000).map(|index| format!("  t{index}: *a\n")).collect::<String>()
    );
    resolve(&same).unwrap_err();
    resolve(&format!("tenants: {}", "[".repeat(100_000))).unwrap_err();
    resolve(&format!("tenants: {}", "{a: ".repeat(100_000))).unwrap_err();
    resolve(&format!("{}a", "? ".repeat(100_000))).unwrap_err();
}

#[test]
fn a_carriage_return_ends_a_line_as_in_yaml() {
    // A comment ends there: what follows is the configuration, not part of the comment.
    let text = format!("# old line ends\r{}", POOL.replace('\n', "\r"));
    assert_eq!(resolve(&text).unwrap().policy.pools.len(), 1);
    // The line that is shown is the one that was meant, and no secret of the next one.
    let text = "# one\rtenants:\r- name: a\r  colour: red\r  keys: [sk-of-the-next-line]\r";
    let told = resolve(text).unwrap_err().to_string();
    assert!(told.starts_with("gateway.yaml:4:3: ") && told.contains("colour:"), "{told}");
    assert!(!told.contains("sk-of"), "{told}");
    let cut = "tenants:\r\n- name: a\r  keys: [sk-of-the-line-before]\r  weight: [\r\n";
    let told = resolve(cut).unwrap_err().to_string();
    assert!(!told.contains("sk-of"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,200}") {
        let _ = resolve(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn a_valid_file_with_any_part_replaced_is_read_or_refused_without_a_panic(
        from in 0.0..1.0_f64,
        length in 0..40_usize,
        with in prop_oneof!["[\\[\\]{}:,&*#|>\"'!%@`\n\t -]{0,6}", "\\PC{0,12}", Just("&a ".to_owned()), Just("*a".to_owned()), Just("<<: ".to_owned())],
    ) {
        let text = include_str!("../../../../../examples/full.yaml");
        let letters: Vec<char> = text.chars().collect();
        let from = (from * letters.len() as f64) as usize;
        let to = (from + length).min(letters.len());
        let mutated: String = letters[..from].iter().copied().chain(with.chars()).chain(letters[to..].iter().copied()).collect();
        if let Err(error) = resolve(&mutated) {
            prop_assert!(!error.problems.is_empty());
            prop_assert!(error.problems.iter().all(|problem| !problem.message.is_empty()));
            prop_assert!(error.to_string().len() < 100_000);
        }
    }
}
